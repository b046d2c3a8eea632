#include "scheduler/ordering.h"

#include <algorithm>

namespace tandem {
namespace {

std::vector<PromptPlace> begun(const SystemView& view, const ClassedPlanner& planner,
                               ServiceClass service_class) {
  std::vector<PromptPlace> prompts;
  for (size_t i = 0; i < view.running.size(); ++i) {
    if (planner.may_prefill(i, service_class)) {
      prompts.push_back({&view.running[i], i, false});
    }
  }
  return prompts;
}

void sort_by_level(std::vector<PromptPlace>& prompts) {
  std::ranges::stable_sort(prompts, {},
                           [](const PromptPlace& prompt) { return prompt.sequence->level; });
}

}  // namespace

std::vector<PromptPlace> running_prompts(const SystemView& view, const ClassedPlanner& planner,
                                         ServiceClass service_class) {
  std::vector<PromptPlace> prompts = begun(view, planner, service_class);
  sort_by_level(prompts);
  return prompts;
}

std::vector<PromptPlace> all_prompts(const SystemView& view, const ClassedPlanner& planner,
                                     ServiceClass service_class) {
  std::vector<PromptPlace> prompts = begun(view, planner, service_class);
  for (const SequenceView& waiting : view.waiting) {
    if (waiting.service_class == service_class) {
      prompts.push_back({&waiting, 0, true});
    }
  }
  sort_by_level(prompts);
  return prompts;
}

}  // namespace tandem
