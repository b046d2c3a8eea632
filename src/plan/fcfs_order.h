// First come, first served, with or without classes and levels; or, among best effort, whose target
// ends first. A sequence that was dropped waits at the place that it had.
#pragma once

#include <array>
#include <memory>
#include <tuple>

#include "plan/queue_line.h"
#include "plan/queue_order.h"

namespace tandem {

class FcfsOrder final : public QueueOrder {
 public:
  enum class By : uint8_t {
    kArrival,     // whatever the class
    kClassFirst,  // latency sensitive before best effort, then by level, then by arrival
    kDeadline,    // the same, but best effort of a level by first_token_due before arrival: those
                  // without a target last
  };
  explicit FcfsOrder(By by) : by_(by), arrivals_(KeyOf{by}), classes_(lines(by)) {}

  [[nodiscard]] bool classes_first() const override { return by_ != By::kArrival; }

  void insert(QueueEntry& entry, const QueuePrefix& /*prefix*/) override {
    class_of(entry).insert(entry);
    if (!classes_first()) {
      arrivals_.insert(entry);
    }
  }
  void erase(QueueEntry& entry) override {
    class_of(entry).erase(entry);
    if (!classes_first()) {
      arrivals_.erase(entry);
    }
  }

  [[nodiscard]] std::span<QueueEntry* const> next(const QueueEntry* after) const override {
    if (!classes_first()) {
      return arrivals_.next(after);
    }
    size_t number = after == nullptr ? 0 : static_cast<size_t>(after->service_class);
    for (; number < classes_.size(); ++number, after = nullptr) {
      if (const auto run = classes_[number].next(after); !run.empty()) {
        return run;
      }
    }
    return {};
  }

  [[nodiscard]] QueueEntry* head(ServiceClass service_class) const override {
    return classes_[static_cast<size_t>(service_class)].first();
  }
  [[nodiscard]] size_t size(ServiceClass service_class) const override {
    return classes_[static_cast<size_t>(service_class)].size();
  }

 private:
  using Key = std::tuple<int32_t, Nanos, RequestId, int32_t>;
  struct KeyOf {
    By by;
    Key operator()(const QueueEntry& entry) const {
      const bool dated = by == By::kDeadline && entry.service_class == ServiceClass::kBestEffort;
      return {by == By::kArrival ? 0 : entry.level, dated ? entry.first_token_due : Nanos{0},
              entry.request, entry.choice};
    }
  };
  using Line = QueueLine<KeyOf>;
  using Lines = std::array<Line, kServiceClasses>;

  static Lines lines(By by) {
    static_assert(kServiceClasses == 2);
    return {Line(KeyOf{by}), Line(KeyOf{by})};
  }
  Line& class_of(const QueueEntry& entry) {
    return classes_[static_cast<size_t>(entry.service_class)];
  }

  const By by_;
  Line arrivals_;  // of all classes; used where classes do not come first
  Lines classes_;
};

inline std::unique_ptr<QueueOrder> fcfs_order(FcfsOrder::By by) {
  return std::make_unique<FcfsOrder>(by);
}

}  // namespace tandem
