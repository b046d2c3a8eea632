#include "scheduler/step_draft.h"

namespace tandem {

bool StepDraft::add_chunk(size_t index, int32_t tokens) {
  if (tokens > 0) {
    planner_.add(index, tokens);
  }
  if (!planner_.planned(index)) {
    return false;
  }
  count_chunk(view_.running[index], tokens);
  return true;
}

bool StepDraft::add_decode(size_t index) {
  planner_.add(index, 1);
  if (!planner_.planned(index)) {
    return false;
  }
  shape_.add_decode(view_.running[index].known_tokens);
  return true;
}

bool StepDraft::admit_to_host(const SequenceView& waiting) {
  if (!planner_.admit_to_host(waiting)) {
    return false;
  }
  count_chunk(waiting, waiting.known_tokens);
  return true;
}

bool StepDraft::admit(const SequenceView& waiting, int32_t tokens) {
  if (!planner_.admit(waiting, tokens)) {
    planner_.note_refused();
    return false;
  }
  count_chunk(waiting, tokens);
  return true;
}

}  // namespace tandem
