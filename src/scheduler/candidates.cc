#include "scheduler/candidates.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "latency/questions.h"
#include "scheduler/host_limit.h"
#include "scheduler/margins.h"
#include "scheduler/step_draft.h"

namespace tandem {
namespace {

constexpr int32_t kAll = std::numeric_limits<int32_t>::max();

int32_t prompt_room(const SystemView& view, const StepDraft& draft, const CandidateRules& rules) {
  const int32_t left = draft.builder().tokens_left();
  return std::min(rules.token_budget - (view.budget.tokens - left),
                  left - visitor_rows(view).tokens);
}

void decode(const SystemView& view, StepDraft& draft, ServiceClass service_class) {
  const int32_t kept = service_class == kBe ? visitor_rows(view).logits : -1;
  for (size_t i = 0; i < view.running.size(); ++i) {
    if (!draft.planner().may_decode(i, service_class)) {
      continue;
    }
    if (draft.builder().logit_rows_left() <= kept) {
      return;
    }
    draft.add_decode(i);
  }
}

void prefill(const SystemView& view, StepDraft& draft, const CandidateRules& rules,
             ServiceClass service_class) {
  for (size_t i = 0; i < view.running.size(); ++i) {
    if (draft.planner().may_prefill(i, service_class)) {
      draft.add_chunk(i,
                      std::min(view.running[i].pending_tokens(), prompt_room(view, draft, rules)));
    }
  }
}

bool leaves_room(const SystemView& view, const StepDraft& draft, const CandidateRules& rules,
                 const SequenceView& waiting) {
  return waiting.service_class == kLs || view.running.empty() ||
         draft.builder().blocks_left() - draft.planner().blocks_to_begin(waiting) >=
             kept_beside_best_effort(draft.planner(), rules.offload_below);
}

void admit(const SystemView& view, StepDraft& draft, const CandidateRules& rules,
           ServiceClass service_class) {
  for (const SequenceView& waiting : view.waiting) {
    if (waiting.service_class != service_class) {
      continue;
    }
    if (!leaves_room(view, draft, rules, waiting)) {
      draft.planner().note_refused();
      return;
    }
    if (!draft.admit(waiting,
                     std::min(waiting.pending_tokens(), prompt_room(view, draft, rules)))) {
      return;  // no skipping ahead: that would starve the long ones
    }
  }
}

void bring_back_best_effort(ClassedPlanner& planner, const CandidateRules& rules) {
  if (!planner.refused() && !planner.builder().preempts() && rules.onload_above < 100) {
    planner.bring_back(kBe, planner.share_of_blocks(rules.onload_above) + planner.reserved_blocks(),
                       kAll);
  }
}

void predict(const Beliefs& beliefs, Candidate& candidate) {
  candidate.tokens = candidate.shape.logit_rows;
  if (beliefs.step_times != nullptr) {
    candidate.time = beliefs.step_times->step_time(candidate.shape);
  }
}

// `visits` rows join, evenly over the stages.
void credit_visits(const Beliefs& beliefs, int64_t visits, Candidate& candidate) {
  if (beliefs.step_times == nullptr) {
    return;
  }
  const int64_t stages = int64_t{beliefs.step_times->layers()} + 1;
  latency::add_visits(candidate.shape, stages, visits);
  candidate.time = beliefs.step_times->step_time(candidate.shape);
  candidate.tokens += static_cast<double>(visits) / static_cast<double>(stages);
}

}  // namespace

Candidate make_resident(const SystemView& view, const Beliefs& beliefs,
                        const CandidateRules& rules) {
  StepDraft draft(view);
  ClassedPlanner& planner = draft.planner();
  decode(view, draft, kLs);
  planner.bring_back(kLs, 0, kAll);
  prefill(view, draft, rules, kLs);
  admit(view, draft, rules, kLs);
  make_room_for_best_effort(planner, view, rules.offload_below);
  decode(view, draft, kBe);
  prefill(view, draft, rules, kBe);
  admit(view, draft, rules, kBe);
  bring_back_best_effort(planner, rules);
  planner.write_through_best_effort(planner.share_of_blocks(rules.offload_below));
  Candidate candidate{.plan = planner.finish(), .shape = draft.shape(), .time = {}};
  predict(beliefs, candidate);
  return candidate;
}

Candidate make_visitors(const SystemView& view, const Beliefs& beliefs,
                        const CandidateRules& rules) {
  Candidate candidate = make_resident(view, beliefs, rules);
  credit_visits(beliefs, ready_results(view), candidate);
  return candidate;
}

Candidate make_overlap(const SystemView& view, const Beliefs& beliefs,
                       const CandidateRules& rules) {
  return make_visitors(view, beliefs, rules);  // their binders differ
}

Candidate make_lanes(const SystemView& view, const Beliefs& beliefs, const CandidateRules& rules) {
  Candidate candidate = make_resident(view, beliefs, rules);
  StepPlan& plan = candidate.plan;
  int32_t offloaded = 0;
  int64_t context = 0;
  for (const SequenceView& sequence : view.offloaded) {
    if (!decodes_on_host(sequence)) {
      continue;
    }
    plan.mode = StepMode::kLanes;
    if (plan.slices.empty() && offloaded % 2 == 0) {
      plan.first_lane.push_back(sequence.id);
    }
    ++offloaded;
    context += sequence.known_tokens;
  }
  if (beliefs.step_times != nullptr) {
    const int32_t layers = beliefs.step_times->layers();
    credit_visits(beliefs, offloaded * (int64_t{layers} + 1), candidate);
    if (beliefs.host_times != nullptr) {
      candidate.time = std::max(*candidate.time,
                                layers * beliefs.host_times->attention_time(offloaded, context));
    }
  }
  return candidate;
}

}  // namespace tandem
