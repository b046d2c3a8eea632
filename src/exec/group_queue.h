// The groups of stages that are launched and not known to be complete, oldest first, and whether
// one more may be launched: so much work is kept queued on the device that it does not run dry
// while the engine thread is on its way. Knows no device: the caller says when the oldest group is
// complete. One thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/clock.h"
#include "device/device.h"
#include "plan/decisions.h"

namespace tandem {

class GroupQueue {
 public:
  static constexpr size_t kMaxGroups = 8;

  struct Group {
    int64_t step = 0;
    int64_t ticket = 0;
    device::EventId done{};
    Nanos launched{0};
    LaunchedGroup stages;
  };

  [[nodiscard]] bool empty() const { return groups_.empty(); }
  [[nodiscard]] const Group& oldest() const { return groups_.front(); }
  void push(const Group& group) { groups_.push_back(group); }

  // The oldest group is complete; `now`: when this was seen.
  void pop(Nanos now) {
    const Group& group = groups_.front();
    const int64_t stages = group.stages.end_stage - group.stages.first_stage;
    stage_time_ = (3 * stage_time_ + (now - began(group)) / stages) / 4;
    last_done_ = now;
    groups_.pop_front();
  }

  // Two groups are always queued, and more of them if they are short.
  [[nodiscard]] bool may_launch(int32_t group_stages) const {
    if (groups_.size() < kMinGroups) {
      return true;
    }
    const Nanos queued = stage_time_ * static_cast<int64_t>(groups_.size()) * group_stages;
    return groups_.size() < kMaxGroups && queued < kTimeAhead;
  }

  // The mean time of a stage in the last groups.
  [[nodiscard]] Nanos stage_time() const { return stage_time_; }

  // Shows a binder the groups of `view.step`. The spans are valid until the next call.
  void show(BindView& view) {
    shown_.clear();
    for (const Group& group : groups_) {
      if (group.step != view.step) {
        continue;  // its step is known to be complete, its own event was not asked yet
      }
      if (shown_.empty()) {
        view.oldest_runs = view.now - began(group);
      }
      shown_.push_back(group.stages);
    }
    view.launched = shown_;
  }

 private:
  static constexpr size_t kMinGroups = 2;
  static constexpr Nanos kTimeAhead = std::chrono::microseconds(1500);

  [[nodiscard]] Nanos began(const Group& oldest) const {
    return std::max(oldest.launched, last_done_);
  }

  std::deque<Group> groups_;
  Nanos stage_time_{0};
  Nanos last_done_{0};
  std::vector<LaunchedGroup> shown_;
};

}  // namespace tandem
