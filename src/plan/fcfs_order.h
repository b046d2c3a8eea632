// First come, first served, with or without classes and levels; or, among best effort, whose target
// ends first. A sequence that was dropped waits at the place that it had.
//
// A line is kept in runs of up to 128 pointers, so that it is found by bisection and read in
// sequence. At 100,000 entries an insert or erase takes about 20 comparisons and moves at most a
// run and, once in 64 inserts, the list of runs.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
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
  explicit FcfsOrder(By by) : by_(by) {}

  [[nodiscard]] bool classes_first() const override { return by_ != By::kArrival; }

  void insert(QueueEntry& entry, const QueuePrefix& /*prefix*/) override {
    Line& line = lines_[line_of(entry.service_class)];
    ++sizes_[static_cast<size_t>(entry.service_class)];
    if (line.empty()) {
      line.emplace_back().push_back(&entry);
      return;
    }
    const size_t place = run_of(line, entry);
    Run& run = line[place];
    run.insert(run.begin() + static_cast<std::ptrdiff_t>(place_in(run, entry)), &entry);
    if (run.size() > kRun) {
      Run upper(run.begin() + kRun / 2, run.end());
      run.resize(kRun / 2);
      line.insert(line.begin() + static_cast<std::ptrdiff_t>(place) + 1, std::move(upper));
    }
  }

  void erase(QueueEntry& entry) override {
    Line& line = lines_[line_of(entry.service_class)];
    CHECK(!line.empty(), "sequence {} does not wait", raw(entry.id));
    const size_t place = run_of(line, entry);
    Run& run = line[place];
    const size_t found = place_in(run, entry);
    CHECK(found < run.size() && run[found] == &entry, "sequence {} does not wait", raw(entry.id));
    run.erase(run.begin() + static_cast<std::ptrdiff_t>(found));
    --sizes_[static_cast<size_t>(entry.service_class)];
    if (run.empty()) {
      line.erase(line.begin() + static_cast<std::ptrdiff_t>(place));
    }
  }

  [[nodiscard]] std::span<QueueEntry* const> next(const QueueEntry* after) const override {
    size_t number = 0;
    if (after != nullptr) {
      number = line_of(after->service_class);
      const Line& line = lines_[number];
      const size_t place = run_of(line, *after);
      const Run& run = line[place];
      const size_t behind = place_in(run, *after) + 1;
      if (behind < run.size()) {
        return std::span(run).subspan(behind);
      }
      if (place + 1 < line.size()) {
        return line[place + 1];
      }
      ++number;
    }
    for (; number < lines_.size(); ++number) {
      if (!lines_[number].empty()) {
        return lines_[number].front();
      }
    }
    return {};
  }

  // By arrival the classes stand in one line, so the first of a class is looked for from its head.
  [[nodiscard]] QueueEntry* head(ServiceClass service_class) const override {
    for (const Run& run : lines_[line_of(service_class)]) {
      const auto found = std::ranges::find(run, service_class, &QueueEntry::service_class);
      if (found != run.end()) {
        return *found;
      }
    }
    return nullptr;
  }
  [[nodiscard]] size_t size(ServiceClass service_class) const override {
    return sizes_[static_cast<size_t>(service_class)];
  }

 private:
  using Run = std::vector<QueueEntry*>;  // not empty
  using Line = std::vector<Run>;
  using Key = std::tuple<int32_t, Nanos, RequestId, int32_t>;
  static constexpr size_t kRun = 128;

  [[nodiscard]] size_t line_of(ServiceClass service_class) const {
    return by_ == By::kArrival ? 0 : static_cast<size_t>(service_class);
  }
  [[nodiscard]] Key key(const QueueEntry& entry) const {
    const bool dated = by_ == By::kDeadline && entry.service_class == ServiceClass::kBestEffort;
    return {by_ == By::kArrival ? 0 : entry.level, dated ? entry.first_token_due : Nanos{0},
            entry.request, entry.choice};
  }
  // How many entries of a run are before `entry`.
  [[nodiscard]] size_t place_in(const Run& run, const QueueEntry& entry) const {
    const auto found = std::ranges::lower_bound(
        run, key(entry), {}, [this](const QueueEntry* other) { return key(*other); });
    return static_cast<size_t>(found - run.begin());
  }
  // The run in which an entry stands or belongs. Needs a line that is not empty.
  [[nodiscard]] size_t run_of(const Line& line, const QueueEntry& entry) const {
    const auto behind = std::ranges::upper_bound(
        line, key(entry), {}, [this](const Run& run) { return key(*run.front()); });
    return behind == line.begin() ? 0 : static_cast<size_t>(behind - line.begin()) - 1;
  }

  const By by_;
  std::array<Line, kServiceClasses> lines_;
  std::array<size_t, kServiceClasses> sizes_{};
};

inline std::unique_ptr<QueueOrder> fcfs_order(FcfsOrder::By by) {
  return std::make_unique<FcfsOrder>(by);
}

}  // namespace tandem
