// The binding side of the hop core: how many visitors are ready, coming and routable at each stage,
// and binding them to a group. Counts what was bound. Engine thread.
#pragma once

#include <cstdint>
#include <vector>

#include "piggyback/core/hop_core.h"

namespace tandem {

class HopQueues {
 public:
  static constexpr int32_t kAllLanes = -1;

  // `core` must outlive the queues.
  explicit HopQueues(piggyback::HopCore& core) : core_(core) {}

  // As HopCore; `lane` may be kAllLanes.
  [[nodiscard]] int32_t ready(int32_t stage, int32_t lane = kAllLanes) const {
    return lane == kAllLanes ? core_.ready(stage) : core_.ready(stage, lane);
  }
  [[nodiscard]] int32_t coming(int32_t stage, int32_t lane = kAllLanes) const {
    return lane == kAllLanes ? core_.coming(stage) : core_.coming(stage, lane);
  }
  [[nodiscard]] int32_t coming_from_before(int32_t stage, int64_t ticket) const {
    return core_.coming_from_before(stage, ticket);
  }
  [[nodiscard]] int32_t credits(int32_t stage) const { return core_.credits(stage); }
  [[nodiscard]] bool any_in_flight() const { return core_.in_flight() > 0; }
  [[nodiscard]] int32_t next_stage(SequenceId sequence) const { return core_.next_stage(sequence); }

  struct Choice {
    int32_t stage = 0;
    int32_t lane = kAllLanes;
    int32_t limit = 0;   // of visitors
    int64_t ticket = 0;  // of the group that runs them
  };
  // Appends the visits that are bound.
  void bind(const Choice& choice, std::vector<piggyback::Visit>& visits) {
    const size_t before = visits.size();
    if (choice.lane == kAllLanes) {
      core_.bind(choice.stage, choice.limit, choice.ticket, visits);
    } else {
      core_.bind_lane(choice.stage, choice.lane, choice.limit, choice.ticket, visits);
    }
    visits_ += static_cast<int64_t>(visits.size() - before);
  }
  void group_done(int64_t ticket) { core_.group_done(ticket); }

  // Since the start.
  [[nodiscard]] int64_t visits() const { return visits_; }

 private:
  piggyback::HopCore& core_;
  int64_t visits_ = 0;
};

}  // namespace tandem
