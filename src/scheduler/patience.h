// For how many steps best effort has been passed over. Each decode has a clock of its own. Prompts
// have one together, because they are computed one after another: it counts the steps in which some
// wait and none gets tokens. What has been passed over for `steps` steps is overdue.
//
// One owner, which tells it after each planning what was passed over.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/check.h"
#include "base/ids.h"

namespace tandem {

class Patience {
 public:
  explicit Patience(int32_t steps) : steps_(steps) {
    CHECK(steps > 0, "a patience of {} steps", steps);
  }

  // Steps since the first in a row in which this decode was passed over; 0: it was not.
  [[nodiscard]] int64_t decode_passed_over(SequenceId id, int64_t step) const {
    const auto since = decodes_.find(id);
    return since == decodes_.end() ? 0 : step - since->second;
  }
  [[nodiscard]] bool decode_is_overdue(SequenceId id, int64_t step) const {
    return decode_passed_over(id, step) >= steps_;
  }
  [[nodiscard]] bool prompts_are_overdue(int64_t step) const {
    return prompts_ >= 0 && step - prompts_ >= steps_;
  }

  // Between these two, what step `step` passes over; what is not named has had its part or is gone.
  void begin_step(int64_t step) {
    step_ = step;
    passed_over_.clear();
    prompts_wait_ = false;
  }
  void pass_over_decode(SequenceId id) {
    const auto since = decodes_.find(id);
    passed_over_.emplace(id, since == decodes_.end() ? step_ : since->second);
  }
  void pass_over_prompts() { prompts_wait_ = true; }
  void end_step() {
    decodes_.swap(passed_over_);
    prompts_ = !prompts_wait_ ? -1 : prompts_ < 0 ? step_ : prompts_;
  }

 private:
  int32_t steps_;
  std::unordered_map<SequenceId, int64_t> decodes_;  // the first step that passed them over
  int64_t prompts_ = -1;                             // the same
  std::unordered_map<SequenceId, int64_t> passed_over_;
  int64_t step_ = 0;
  bool prompts_wait_ = false;
};

// For how many steps in a row something has been so. One owner.
class InARow {
 public:
  // Since the first of them, once step `step` is counted; -1: it is not so.
  int64_t steps(bool is_so, int64_t step) {
    since_ = !is_so ? -1 : since_ < 0 ? step : since_;
    return is_so ? step - since_ : -1;
  }

 private:
  int64_t since_ = -1;
};

}  // namespace tandem
