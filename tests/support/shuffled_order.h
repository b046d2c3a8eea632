// An order of the queue in which every sequence stands at a random place, new each time that it
// waits. One owner.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <random>

#include "base/check.h"
#include "plan/queue_order.h"

namespace tandem::testing {

class ShuffledOrder final : public QueueOrder {
 public:
  explicit ShuffledOrder(uint64_t seed) : random_(seed) {}
  [[nodiscard]] bool classes_first() const override { return false; }
  void insert(QueueEntry& entry, const QueuePrefix& /*prefix*/) override {
    const uint64_t place = random_();
    CHECK(line_.emplace(place, &entry).second && places_.emplace(entry.id, place).second,
          "sequence {} waits already", raw(entry.id));
    ++sizes_[static_cast<size_t>(entry.service_class)];
  }
  void erase(QueueEntry& entry) override {
    const auto place = places_.find(entry.id);
    CHECK(place != places_.end(), "sequence {} does not wait", raw(entry.id));
    line_.erase(place->second);
    places_.erase(place);
    --sizes_[static_cast<size_t>(entry.service_class)];
  }
  // One at a time.
  [[nodiscard]] std::span<QueueEntry* const> next(const QueueEntry* after) const override {
    const auto found = after == nullptr ? line_.begin() : line_.upper_bound(places_.at(after->id));
    return found == line_.end() ? std::span<QueueEntry* const>() : std::span(&found->second, 1);
  }
  [[nodiscard]] QueueEntry* head(ServiceClass service_class) const override {
    for (const auto& [place, entry] : line_) {
      if (entry->service_class == service_class) {
        return entry;
      }
    }
    return nullptr;
  }
  [[nodiscard]] size_t size(ServiceClass service_class) const override {
    return sizes_[static_cast<size_t>(service_class)];
  }

 private:
  std::mt19937_64 random_;
  std::map<uint64_t, QueueEntry*> line_;  // by place
  std::map<SequenceId, uint64_t> places_;
  std::array<size_t, kServiceClasses> sizes_{};
};

}  // namespace tandem::testing
