// Lanes or none: which offloaded tokens join which lane, and whether the step has any.
#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "scheduler/policies/neo_step.h"

namespace tandem {
namespace {

constexpr double kChangesMode = 1.02;  // so much better must the other mode be (neo_plus)

}  // namespace

void NeoStep::find_host_decodes() {
  const std::vector<SequenceId>& returning = draft_.builder().returning();
  for (const SequenceView& sequence : view_.offloaded) {
    if (sequence.state == SequenceState::kParkedInFlight) {
      Lane& lane = under_way_[sequence.lane];
      ++lane.visitors;
      lane.context += sequence.known_tokens;
    } else if (sequence.state == SequenceState::kParkedWaiting &&
               std::ranges::find(returning, sequence.id) == returning.end()) {
      const bool overdue =
          rules_.repaired && memory_.patience.decode_is_overdue(sequence.id, view_.step);
      candidates_.push_back({.decode = {.context = sequence.known_tokens, .overdue = overdue},
                             .sequence = &sequence});
    }
  }
  if (rules_.repaired) {
    order_host_decodes();
  }
  for (const Candidate& candidate : candidates_) {
    decodes_.push_back(candidate.decode);
    decodes_.back().overdue |= rules_.all_on_host;
  }
}

// Overdue ones first, then by class, then by what is due first or was passed over longest.
void NeoStep::order_host_decodes() {
  const auto rank = [&](const Candidate& candidate) {
    const SequenceView& sequence = *candidate.sequence;
    return std::tuple(!candidate.decode.overdue, sequence.service_class, sequence.next_token_due,
                      -memory_.patience.decode_passed_over(sequence.id, view_.step));
  };
  std::ranges::stable_sort(candidates_, {}, rank);
}

PlacementLimits NeoStep::placement_limits(const Lanes& lanes) const {
  const PlanBuilder& builder = draft_.builder();
  PlacementLimits limits{.decodes = std::min(int64_t{builder.tokens_left()} - prompt_rows_,
                                             int64_t{builder.logit_rows_left()} - prompt_logits_)};
  if (step_limit_ != Nanos::max()) {
    Lanes all = lanes;  // what is beside the layers, if all of them join
    all[1].visitors += std::min<int64_t>(limits.decodes, std::ssize(decodes_));
    limits.layer_time = (step_limit_ - model_.beside_layers(all)) / model_.step_times().layers();
  }
  return limits;
}

// Where nothing else goes on, and where all decode on the host, no sequence sits out: one that has
// a place among the executor's visitors would keep it from another one.
Placement NeoStep::placed(const Lanes& lanes) const {
  if (lanes[0].residents.empty()) {
    return place_all(model_, lanes, decodes_);
  }
  if (rules_.all_on_host) {
    return place_by_slack(model_, lanes, decodes_, {.decodes = std::ssize(decodes_)});
  }
  const PlacementLimits limits = placement_limits(lanes);
  return rules_.repaired ? place_by_slack(model_, lanes, decodes_, limits)
                         : place_first_come(model_, lanes, decodes_, limits);
}

// Requests that have a part in the step; where the rules are repaired output tokens, and of each
// prompt the share that the step computes.
double NeoStep::credit_of(const Lanes& lanes, size_t prompts) const {
  const latency::StepShape& shape = lanes[0].residents;
  const auto visitors = static_cast<double>(lanes[0].visitors + lanes[1].visitors);
  if (!rules_.repaired) {
    return visitors + shape.decode_rows + shape.prefill_slices;
  }
  double credit = visitors + shape.decode_rows + begun_credit_;
  for (const Prompt& prompt : std::span(prompts_).first(prompts)) {
    credit += static_cast<double>(prompt.tokens) / prompt.sequence->known_tokens;
  }
  return credit;
}

NeoStep::Choice NeoStep::resident_choice() const {
  Choice choice{.prompts = without_host_bound_tail(nullptr), .placement = {}};
  Lanes lanes;
  lanes[0].residents = shape_with(choice.prompts);
  choice.placement.lane.assign(decodes_.size(), kHeld);
  choice.credit = credit_of(lanes, choice.prompts);
  choice.time = model_.layers_time(lanes[0]);
  if (rules_.repaired) {
    choice.time += model_.beside_layers(lanes);
  }
  return choice;
}

NeoStep::Choice NeoStep::lanes_choice() const {
  Choice choice{.prompts = prompts_.size(), .placement = {}};
  Lanes start = under_way_;
  start[0].residents = shape_with(choice.prompts);
  choice.placement = placed(start);
  Lanes& lanes = choice.placement.lanes;
  if (!rules_.all_on_host) {
    choice.prompts = without_host_bound_tail(&choice.placement);
    lanes[0].residents = shape_with(choice.prompts);
  }
  choice.credit = credit_of(lanes, choice.prompts);
  choice.time = model_.layers_time(lanes);
  if (rules_.repaired) {
    choice.time += model_.beside_layers(lanes);
  }
  return choice;
}

bool NeoStep::lanes_pay(const Choice& lanes, const Choice& resident) const {
  const Lanes& both = lanes.placement.lanes;
  if (both[0].residents.empty() || rules_.all_on_host) {
    return both[0].visitors + both[1].visitors > 0;
  }
  if (both[1].visitors == 0 && !(rules_.repaired && both[0].visitors > 0)) {
    return false;
  }
  const auto rate = [](const Choice& choice) {
    return choice.credit / std::max(static_cast<double>(choice.time.count()), 1.0);
  };
  if (!rules_.repaired) {
    return rate(lanes) > rate(resident);
  }
  if (makes_first_token_late(lanes, resident)) {
    return false;
  }
  const double change = memory_.had_lanes ? 1 / kChangesMode : kChangesMode;
  return rate(lanes) > rate(resident) * change ||
         std::ranges::any_of(decodes_, &HostDecode::overdue);
}

bool NeoStep::makes_first_token_late(const Choice& lanes, const Choice& resident) const {
  return first_token_due_ != Nanos::max() && view_.now + resident.time <= first_token_due_ &&
         view_.now + lanes.time > first_token_due_;
}

StepPlan NeoStep::finish(const Choice& choice) {
  for (const Prompt& prompt : prompts_) {
    if (prompt.host_bound) {
      mark_host_bound(*prompt.sequence);
    }
  }
  for (const Prompt& prompt : std::span(prompts_).first(choice.prompts)) {
    draft_.admit(*prompt.sequence, prompt.tokens);
  }
  StepPlan plan = draft_.planner().finish();
  name_lanes(choice.placement, plan);
  return plan;
}

// Which sequences join which lane and which sit the step out.
void NeoStep::name_lanes(const Placement& placement, StepPlan& plan) {
  const Lanes& lanes = placement.lanes;
  memory_.had_lanes = lanes[0].visitors + lanes[1].visitors > 0;
  if (memory_.had_lanes) {
    plan.mode = StepMode::kLanes;
    tell_lone(plan);
  }
  memory_.patience.begin_step(view_.step);
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const SequenceId id = candidates_[i].sequence->id;
    if (placement.lane[i] == kHeld) {
      plan.hold.push_back(id);
      memory_.patience.pass_over_decode(id);
    } else if (placement.lane[i] == 0) {
      plan.first_lane.push_back(id);
    }
  }
  memory_.patience.end_step();
  plan.hold.insert(plan.hold.end(), plan.offload.begin(), plan.offload.end());
}

void NeoStep::tell_lone(const StepPlan& plan) {
  const bool others_move =
      any_offloaded_is(SequenceState::kOffloading) || any_offloaded_is(SequenceState::kOnloading);
  if (plan.slices.empty() && plan.onload.empty() && view_.running.empty() && !others_move &&
      !rules_.all_on_host && !rules_.repaired && !std::exchange(memory_.told_lone, true)) {
    log::warn(
        "only sequences on the host are left, and the accelerator has no room for the first of "
        "them; they go on there, where NEO as published would stop");
  }
}

}  // namespace tandem
