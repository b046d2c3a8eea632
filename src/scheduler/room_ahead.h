// Room for the prompts of the promised line that could begin in the next step. It is made a step
// before they come, for all of them at once: each prompt that had to make it when its turn comes
// would be a step late. One object per planning, told what latency-sensitive sequences do in the
// step. Plain state, no threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plan/views.h"
#include "scheduler/best_effort_claims.h"
#include "scheduler/classed_planner.h"
#include "scheduler/first_tokens.h"

namespace tandem {

class LineAhead {
 public:
  explicit LineAhead(const SystemView& view) : view_(view), promised_(promised_line(view)) {
    while (promised_ == view.waiting.size() && later_ > 0 &&
           view.later[later_ - 1].first_token_due == Nanos::max()) {
      --later_;
    }
  }

  // How many of the leading sequences in view.waiting are in the promised line.
  [[nodiscard]] size_t promised() const { return promised_; }

  // A latency-sensitive decode is in the step.
  void count_decode(const SequenceView& decode) {
    growth_ += decode.known_tokens == decode.held_blocks * view_.budget.block_tokens ? 1 : 0;
  }
  // `tokens` of a latency-sensitive prompt that has begun, perhaps none, are in the step.
  void count_prompt(const SequenceView& prompt, int32_t tokens) {
    rest_ += prompt.pending_tokens() - tokens;
    growth_ += prompt.pending_tokens() == tokens ? prompt.choices : 0;  // a new one or a copy each
  }
  // The next of view.waiting begins in the step.
  void count_begun(const SequenceView& prompt, int32_t tokens) {
    ++begun_;
    count_prompt(prompt, tokens);
  }

  // What the next step needs, where it has so many rows for prompts; no places: none of the line
  // could begin in it. Best effort that is overdue
  // gets its blocks, too.
  [[nodiscard]] RoomAhead needed(const ClassedPlanner& planner, const BestEffortClaims& claims,
                                 int32_t rows) const;
  // From now on best effort leaves that.
  void keep(const ClassedPlanner& planner, const RoomAhead& room) {
    places_ = room.places;
    blocks_ = places_ == 0 ? 0 : room.blocks + planner.builder().blocks_before_best_effort();
  }
  [[nodiscard]] int32_t places() const { return places_; }
  [[nodiscard]] int64_t blocks() const { return blocks_; }
  // Best effort takes so many blocks.
  [[nodiscard]] bool is_left_by(const ClassedPlanner& planner, int64_t taken) const {
    return blocks_ == 0 || taken == 0 || planner.builder().blocks_left() - taken >= blocks_;
  }
  // The decode at `index` of view.running is in the step.
  [[nodiscard]] bool is_left_by_decode(const ClassedPlanner& planner, size_t index) const {
    return blocks_ == 0 || is_left_by(planner, planner.blocks_to_grow(index, 1));
  }

 private:
  const SystemView& view_;
  size_t promised_;
  size_t later_ = view_.later.size();  // of view.later, where all of view.waiting is
  size_t begun_ = 0;                   // of view.waiting
  int32_t rest_ = 0;                   // tokens of prompts that have begun, after the step
  int64_t growth_ = 0;                 // blocks that decodes take in the next step
  int32_t places_ = 0;
  int64_t blocks_ = 0;
};

}  // namespace tandem
