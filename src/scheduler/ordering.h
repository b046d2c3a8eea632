// In which order the prompts of a class get tokens: lower levels first, inside a level prompts that
// have begun before those that wait, then first come, first served. Plain functions; any thread.
#pragma once

#include <cstddef>
#include <vector>

#include "plan/views.h"
#include "scheduler/classed_planner.h"

namespace tandem {

// A prompt that runs, by its place in view.running, or one that waits.
struct PromptPlace {
  const SequenceView* sequence = nullptr;  // of the view
  size_t index = 0;                        // running prompts only
  bool waits = false;
};

// Of those that run and have no part in the plan yet.
std::vector<PromptPlace> running_prompts(const SystemView& view, const ClassedPlanner& planner,
                                         ServiceClass service_class);
// Of those and of the sequences that wait.
std::vector<PromptPlace> all_prompts(const SystemView& view, const ClassedPlanner& planner,
                                     ServiceClass service_class);

}  // namespace tandem
