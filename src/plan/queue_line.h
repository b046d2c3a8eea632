// Waiting entries in the order of a key, found by bisection and read in sequence.
//
// A line is kept in runs of up to 128 pointers. At 100,000 entries an insert or erase takes about
// 20 comparisons and moves at most a run and, once in 64 inserts, the list of runs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "plan/queue_order.h"

namespace tandem {

// KeyOf: what an entry is ordered by, different for any two entries and the same while one waits.
template <class KeyOf>
class QueueLine {
 public:
  explicit QueueLine(KeyOf key_of) : key_of_(key_of) {}

  [[nodiscard]] size_t size() const { return size_; }
  // Null: the line is empty.
  [[nodiscard]] QueueEntry* first() const {
    return runs_.empty() ? nullptr : runs_.front().front();
  }

  void insert(QueueEntry& entry) {
    ++size_;
    if (runs_.empty()) {
      runs_.emplace_back().push_back(&entry);
      return;
    }
    const size_t place = run_of(entry);
    Run& run = runs_[place];
    run.insert(run.begin() + static_cast<std::ptrdiff_t>(place_in(run, entry)), &entry);
    if (run.size() > kRun) {
      Run upper(run.begin() + kRun / 2, run.end());
      run.resize(kRun / 2);
      runs_.insert(runs_.begin() + static_cast<std::ptrdiff_t>(place) + 1, std::move(upper));
    }
  }

  void erase(const QueueEntry& entry) {
    CHECK(!runs_.empty(), "sequence {} does not wait", raw(entry.id));
    const size_t place = run_of(entry);
    Run& run = runs_[place];
    const size_t found = place_in(run, entry);
    CHECK(found < run.size() && run[found] == &entry, "sequence {} does not wait", raw(entry.id));
    run.erase(run.begin() + static_cast<std::ptrdiff_t>(found));
    --size_;
    if (run.empty()) {
      runs_.erase(runs_.begin() + static_cast<std::ptrdiff_t>(place));
    }
  }

  // As QueueOrder::next, of this line.
  [[nodiscard]] std::span<QueueEntry* const> next(const QueueEntry* after) const {
    size_t place = 0;
    if (after != nullptr) {
      place = run_of(*after);
      const Run& run = runs_[place];
      const size_t behind = place_in(run, *after) + 1;
      if (behind < run.size()) {
        return std::span(run).subspan(behind);
      }
      ++place;
    }
    return place < runs_.size() ? std::span<QueueEntry* const>(runs_[place])
                                : std::span<QueueEntry* const>();
  }

 private:
  using Run = std::vector<QueueEntry*>;  // not empty
  static constexpr size_t kRun = 128;

  // How many entries of a run are before `entry`.
  [[nodiscard]] size_t place_in(const Run& run, const QueueEntry& entry) const {
    const auto found = std::ranges::lower_bound(
        run, key_of_(entry), {}, [this](const QueueEntry* other) { return key_of_(*other); });
    return static_cast<size_t>(found - run.begin());
  }
  // The run in which an entry stands or belongs. Needs a line that is not empty.
  [[nodiscard]] size_t run_of(const QueueEntry& entry) const {
    const auto behind = std::ranges::upper_bound(
        runs_, key_of_(entry), {}, [this](const Run& run) { return key_of_(*run.front()); });
    return behind == runs_.begin() ? 0 : static_cast<size_t>(behind - runs_.begin()) - 1;
  }

  const KeyOf key_of_;
  std::vector<Run> runs_;
  size_t size_ = 0;
};

}  // namespace tandem
