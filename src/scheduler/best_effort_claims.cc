#include "scheduler/best_effort_claims.h"

#include <algorithm>

namespace tandem {

int32_t places_of(const SystemView& view) {
  int32_t places = view.budget.sequences;
  for (const SequenceView& sequence : view.running) {
    places += sequence.choices;
  }
  return places;
}

BestEffortClaims best_effort_claims(const SystemView& view, const ClassedPlanner& planner,
                                    const Patience& patience) {
  BestEffortClaims claims;
  ForcedWork& work = claims.work;
  work.offloaded = static_cast<int32_t>(view.offloaded.size());
  const auto count_prompt = [&](const SequenceView& prompt) {
    ++work.prompts;
    work.prompt_tokens = std::max<int64_t>(work.prompt_tokens, prompt.known_tokens);
  };
  OverdueHead held;
  size_t begun = view.running.size();
  for (size_t i = 0; i < view.running.size(); ++i) {
    const SequenceView& one = view.running[i];
    if (one.service_class != kBe) {
      continue;
    }
    held.blocks += one.own_blocks;
    held.places += one.choices;
    if (one.decodes()) {
      ++work.decodes;
      work.context += one.known_tokens;
      if (patience.decode_is_overdue(one.id, view.step)) {
        ++claims.overdue_decodes;
        claims.overdue_context += one.known_tokens;
      }
    } else {
      count_prompt(one);
      begun = std::min(begun, i);
    }
  }
  const auto head = std::ranges::find(view.waiting, kBe, &SequenceView::service_class);
  if (head != view.waiting.end()) {
    claims.head = &*head;
    count_prompt(*head);
  }
  claims.prompt_is_overdue = work.prompts > 0 && patience.prompts_are_overdue(view.step);
  if (!claims.prompt_is_overdue) {
    return claims;
  }
  if (begun < view.running.size()) {
    claims.prompt_can_run = planner.blocks_to_grow(begun, 1) <= view.budget.free_blocks;
    return claims;
  }
  const OverdueHead needs{planner.blocks_to_begin(*head), head->choices};
  claims.of_head = claim_of_head(needs, held, {view.budget.total_blocks, places_of(view)});
  claims.prompt_can_run =
      needs.blocks <= view.budget.free_blocks && needs.places <= view.budget.sequences;
  return claims;
}

}  // namespace tandem
