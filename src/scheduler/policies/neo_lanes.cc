// Lanes or none: which offloaded tokens join which lane, and whether the step has any.
#include <algorithm>
#include <chrono>
#include <limits>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "latency/questions.h"
#include "scheduler/policies/neo_step.h"

namespace tandem {
namespace {

// Of the first lane; no prompt leaves a step with fewer.
constexpr int64_t kFewestRows = 128;
// The same in times of one row; repaired rules.
constexpr int64_t kFullStep = 10;

constexpr double kChangesMode = 1.02;  // so much better must the other mode be (neo_plus)

// Overdue decodes may add one part in 100 to the time of all steps, and two steps to a single one.
constexpr int64_t kPartForOverdue = 100;
constexpr int64_t kStepsForOverdue = 2;
constexpr int64_t kStepsOfMean = 32;
// The most for a step with lanes and no target, or twice a step without lanes if that is more.
constexpr Nanos kLongestLanes = std::chrono::seconds(1);

}  // namespace

// Tokens under way, as they are and, as APEX has it ("partial progress"), all in the second lane:
// in the first the residents would wait for them at each of the stages that they have left.
void NeoStep::find_under_way() {
  LanesUnderWay& moved = ways_[0];
  LanesUnderWay& as_is = ways_[1];
  const int32_t layers = model_.step_times().layers();
  moved.moves_first = true;
  const auto add = [](LanesUnderWay& way, size_t in, const SequenceView& sequence, int32_t stage) {
    Lane& lane = way.lanes[in];
    if (in == 1) {
      way.second_stage = lane.visitors == 0 ? stage : std::min(way.second_stage, stage);
    }
    ++lane.visitors;
    lane.context += sequence.known_tokens;
  };
  for (const SequenceView& sequence : view_.offloaded) {
    if (sequence.state == SequenceState::kParkedInFlight) {
      const int32_t stage = std::clamp(sequence.stage, 0, layers);
      add(as_is, sequence.lane, sequence, stage);
      add(moved, 1, sequence, stage);
      advanced_ += static_cast<double>(stage) / (layers + 1);
    }
  }
  under_way_ = as_is.lanes;
}

void NeoStep::find_host_decodes() {
  const std::vector<SequenceId>& returning = draft_.builder().returning();
  for (const SequenceView& sequence : view_.offloaded) {
    if (sequence.state == SequenceState::kParkedWaiting &&
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
  }
}

// What a step of this shape keeps for tokens under way and an overdue one, while best-effort
// prompts are cut; no time if that would be more than half.
NeoStep::HostReserve NeoStep::reserve_beside(const latency::StepShape& shape,
                                             const HostDecode* overdue) const {
  const int64_t under_way = under_way_[0].visitors + under_way_[1].visitors;
  if (!rules_.repaired || (under_way == 0 && overdue == nullptr)) {
    return {};
  }
  const latency::StepTimeModel& times = model_.step_times();
  HostReserve reserve{.rows = static_cast<int32_t>(under_way / (times.layers() + 1)) + 1};
  if (step_limit_ == Nanos::max()) {
    return reserve;
  }
  const int64_t with = overdue != nullptr ? 1 : 0;
  reserve.time = latency::visitor_reserve(times, shape, under_way + with);
  if (rules_.join == HostJoin::kByNeo) {
    Lanes lanes = under_way_;
    lanes[0].residents = shape;
    lanes[1].visitors += with;
    lanes[1].context += overdue != nullptr ? overdue->context : 0;
    reserve.time = std::max(
        model_.layers_time(lanes) + model_.beside_layers(lanes) - times.step_time(shape), Nanos{0});
  }
  if (reserve.time > step_limit_ / 2) {
    reserve.time = Nanos{0};
  }
  return reserve;
}

void NeoStep::reserve_for_host() {
  const HostReserve reserve =
      reserve_beside(shape_with(0), any_overdue() ? &decodes_.front() : nullptr);
  rows_for_host_ = reserve.rows;
  if (step_limit_ != Nanos::max()) {
    chunk_limit_ = step_limit_ - reserve.time;
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
  limits.for_overdue = memory_.for_overdue / model_.step_times().layers();
  return limits;
}

// Whether the accelerator soon has a resident again. Where the rules are repaired no token begins
// until then: on a slow host all of them would be under way for long, none could return when that
// resident ends, and the accelerator would be idle.
bool NeoStep::comes_back() const {
  return rules_.repaired &&
         (!draft_.builder().returning().empty() || any_offloaded_is(SequenceState::kOnloading));
}

// If nothing else is in the step, and if all decode on the host, no sequence sits out: one that has
// a place among the executor's visitors would keep it from another one.
Placement NeoStep::placed(const Lanes& lanes) const {
  if (lanes[0].residents.empty()) {
    return comes_back()
               ? Placement{.lane = std::vector<int8_t>(decodes_.size(), kHeld), .lanes = lanes}
               : place_all(model_, lanes, decodes_);
  }
  if (rules_.all_on_host) {
    return place_whatever_it_takes(model_, lanes, decodes_);
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

// Whether this first lane is too small for a prompt to leave the step. The repaired rules also ask
// for much more work than reading the weights, which a shorter step has to do as well.
bool NeoStep::is_small(const Lane& first) const {
  if (first.rows() < kFewestRows) {
    return true;
  }
  if (!rules_.repaired) {
    return false;
  }
  Lane row;
  row.residents.add_decode(1);
  return model_.times(first).dense <= kFullStep * model_.times(row).dense;
}

// Rule 5: how many prompts stay. With a placement its slack must not become negative.
size_t NeoStep::without_host_bound_tail(const Placement* placement) const {
  size_t prompts = prompts_.size();
  while (prompts > 0 && prompts_[prompts - 1].host_bound) {
    Lanes lanes = placement != nullptr ? placement->lanes : Lanes{};
    lanes[0].residents = shape_with(prompts - 1);
    if (is_small(lanes[0]) || (placement != nullptr && model_.slack(lanes).least() < Nanos{0})) {
      break;
    }
    --prompts;
  }
  return prompts;
}

NeoStep::Choice NeoStep::resident_choice() const {
  const bool trims = rules_.join == HostJoin::kByNeo;
  Choice choice{.prompts = trims ? without_host_bound_tail(nullptr) : prompts_.size(),
                .placement = {}};
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

// The ways that come into question, the preferred one first. Without residents nothing is held up;
// the repaired rules compare both, because the second lane reads the weights again.
std::span<const NeoStep::LanesUnderWay> NeoStep::ways_in_lanes() const {
  const std::span<const LanesUnderWay> both(ways_);
  const bool has_residents = !shape_with(prompts_.size()).empty();
  if (under_way_[0].visitors == 0 || !has_residents || rules_.all_on_host) {
    return both.last(1);
  }
  return rules_.repaired ? both : both.first(1);
}

NeoStep::Choice NeoStep::lanes_choice(const LanesUnderWay& under_way) const {
  Choice choice{.prompts = prompts_.size(), .placement = {}, .form = StepForm::kTwoLanes};
  Lanes start = under_way.lanes;
  start[0].residents = shape_with(choice.prompts);
  choice.placement = placed(start);
  Lanes& lanes = choice.placement.lanes;
  if (!rules_.all_on_host && rules_.join == HostJoin::kByNeo) {
    choice.prompts = without_host_bound_tail(&choice.placement);
    lanes[0].residents = shape_with(choice.prompts);
  }
  Choice priced = priced_lanes(std::move(choice), under_way);
  return may_wait_for_host(priced) ? better_with_waiting(std::move(priced), under_way) : priced;
}

// The second lane begins at the first stage that has a token for it: tokens that have come as far
// as stage i cost it layers - i dense stages (APEX 3.4), and are credited with the rest of their
// way.
NeoStep::Choice NeoStep::priced_lanes(Choice choice, const LanesUnderWay& under_way) const {
  Lanes lanes = choice.placement.lanes;
  choice.moves_first = under_way.moves_first;
  choice.credit = credit_of(lanes, choice.prompts);
  const int32_t layers = model_.step_times().layers();
  const bool begins_new = lanes[1].visitors > under_way.lanes[1].visitors;
  const int32_t first = begins_new ? 0 : under_way.second_stage;
  choice.time = (layers - first) * model_.layer_time(model_.times(lanes));
  if (rules_.repaired) {
    choice.credit -= advanced_;
    choice.time += model_.beside_layers(lanes);
    choice.for_overdue = choice.placement.for_overdue * layers;
  }
  if (first > 0) {
    lanes[1] = {};
    choice.time += first * model_.layer_time(model_.times(lanes));
  }
  return choice;
}

// Of the steps with lanes.
NeoStep::Choice NeoStep::best_lanes(const Choice& resident) const {
  const std::span<const LanesUnderWay> ways = ways_in_lanes();
  Choice best = lanes_choice(ways.front());
  if (ways.size() > 1) {
    const double worth = worth_of_time(resident);
    const auto value = [worth](const Choice& choice) {
      return choice.credit - worth * static_cast<double>(choice.time.count());
    };
    if (Choice other = lanes_choice(ways.back()); value(other) > value(best)) {
      best = std::move(other);
    }
  }
  return best;
}

// The decodes of the accelerator, and no prompts.
latency::StepShape NeoStep::resident_decodes() const {
  latency::StepShape decodes;
  decodes.decode_rows = draft_.shape().decode_rows;
  decodes.decode_context = draft_.shape().decode_context;
  decodes.logit_rows = decodes.decode_rows;
  return decodes;
}

// In output tokens: what the residents would get in it. A step with prompts gives few of them in
// its time, but the time that it adds is taken from steps without.
double NeoStep::worth_of_time(const Choice& resident) const {
  const latency::StepShape decodes = resident_decodes();
  const auto time = static_cast<double>(model_.step_times().step_time(decodes).count());
  return std::max(resident.rate(), time > 0 ? decodes.decode_rows / time : 0);
}

// Of steps with residents.
Nanos NeoStep::longest_lanes(const Choice& resident) const {
  return std::min(step_limit_, std::max(kLongestLanes, 2 * resident.time));
}

NeoStep::Choice NeoStep::best_of(Choice lanes, const Choice& resident) const {
  const Lanes& both = lanes.placement.lanes;
  if (both[0].residents.empty() || rules_.all_on_host) {
    return both[0].visitors + both[1].visitors > 0 ? lanes : resident;
  }
  if (both[1].visitors == 0 && !(rules_.repaired && both[0].visitors > 0)) {
    return resident;
  }
  if (!rules_.repaired) {
    return lanes.rate() > resident.rate() ? lanes : resident;
  }
  if (makes_first_token_late(lanes, resident) || lanes.time > longest_lanes(resident)) {
    return resident;
  }
  if (lanes_gain(lanes, resident)) {
    return lanes;
  }
  for (size_t i = 0; i < decodes_.size(); ++i) {
    if (decodes_[i].overdue && lanes.placement.lane[i] != kHeld) {
      lanes.for_overdue = std::max(lanes.time - resident.time, Nanos{0});
      return lanes.for_overdue <= memory_.for_overdue ? lanes : resident;
    }
  }
  return resident;
}

// Compared with a step of the same prompts, so that it does not matter what a prompt is worth.
bool NeoStep::lanes_gain(const Choice& lanes, const Choice& resident) const {
  Choice without;
  Lanes alone;
  alone[0].residents = shape_with(lanes.prompts);
  without.credit = credit_of(alone, lanes.prompts);
  without.time = model_.layers_time(alone[0]) + model_.beside_layers(alone);
  const double worth = worth_of_time(lanes.prompts == resident.prompts ? resident : without);
  const auto value = [&](const Choice& choice, bool changes) {
    return choice.credit / (changes ? kChangesMode : 1) -
           worth * static_cast<double>(choice.time.count());
  };
  return value(lanes, !memory_.had_lanes) > value(without, memory_.had_lanes);
}

// Whether a first token comes too late because this step has lanes, if none of the next have. A
// prompt takes ceil(tokens / chunk) steps, earlier prompts included; the chunk is this step's, or
// the rows of the next step if no prompt has a part in this one.
bool NeoStep::makes_first_token_late(const Choice& lanes, const Choice& resident) const {
  const bool begun = first_token_chunk_ > 0;
  const int64_t chunk = begun ? first_token_chunk_ : view_.budget.tokens;
  return std::ranges::any_of(first_tokens_, [&](const FirstToken& prompt) {
    if (prompt.due == Nanos::max()) {
      return false;
    }
    const int64_t steps = (prompt.pending + chunk - 1) / chunk + (begun ? 0 : 1);
    const Nanos later = view_.now + steps * resident.time;
    return later <= prompt.due && later - resident.time + lanes.time > prompt.due;
  });
}

// The mean over some kStepsOfMean steps.
void NeoStep::count_prompt_time(size_t prompts) {
  const LaneTimes all = model_.times(Lane{.residents = shape_with(prompts)});
  const LaneTimes decodes = model_.times(Lane{.residents = resident_decodes()});
  const Nanos added = all.dense + all.attention - decodes.dense - decodes.attention;
  memory_.prompts_per_layer += (added - memory_.prompts_per_layer) / kStepsOfMean;
}

StepPlan NeoStep::finish(const Choice& choice) {
  if (rules_.repaired) {
    count_prompt_time(choice.prompts);
  }
  for (const Prompt& prompt : prompts_) {
    if (prompt.host_bound && !prompt.straight) {
      mark_host_bound(*prompt.sequence);
    }
  }
  for (const Prompt& prompt : std::span(prompts_).first(choice.prompts)) {
    if (prompt.straight) {
      draft_.admit_to_host(*prompt.sequence);
    } else {
      draft_.admit(*prompt.sequence, prompt.tokens);
    }
  }
  memory_.for_overdue =
      std::clamp(memory_.for_overdue - choice.for_overdue + choice.time / kPartForOverdue, Nanos{0},
                 kStepsForOverdue * std::max(choice.time - choice.for_overdue, Nanos{0}));
  StepPlan plan = draft_.planner().finish();
  name_lanes(choice, plan);
  return plan;
}

// Which sequences join which lane and which sit the step out.
void NeoStep::name_lanes(const Choice& choice, StepPlan& plan) {
  const Placement& placement = choice.placement;
  memory_.had_lanes = choice.form == StepForm::kTwoLanes;
  if (memory_.had_lanes) {
    plan.mode = StepMode::kLanes;
    tell_lone(plan);
  }
  memory_.patience.begin_step(view_.step);
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const SequenceId id = candidates_[i].sequence->id;
    int8_t lane = placement.lane[i];
    if (lane == kHeld) {
      if (memory_.patience.decode_passed_over(id, view_.step) < rules_.max_held_steps) {
        plan.hold.push_back(id);
        memory_.patience.pass_over_decode(id);
        continue;
      }
      plan.let_in.push_back(id);
      lane = 1;
    }
    if (lane == 0 && memory_.had_lanes) {
      plan.first_lane.push_back(id);
    } else if (lane == 1 && !memory_.had_lanes) {
      plan.second_lane.push_back(id);
    }
  }
  memory_.patience.end_step();
  if (memory_.had_lanes && choice.moves_first) {
    move_first_lane(plan);
  }
  plan.hold.insert(plan.hold.end(), plan.offload.begin(), plan.offload.end());
}

// Moves tokens under way from the first lane to the second.
void NeoStep::move_first_lane(StepPlan& plan) const {
  for (const SequenceView& sequence : view_.offloaded) {
    if (sequence.state == SequenceState::kParkedInFlight && sequence.lane == 0 &&
        std::ranges::find(plan.preempt, sequence.id) == plan.preempt.end()) {
      plan.lane_moves.push_back({.sequence = sequence.id, .lane = 1});
    }
  }
}

void NeoStep::tell_lone(const StepPlan& plan) {
  const bool others_move =
      any_offloaded_is(SequenceState::kOffloading) || any_offloaded_is(SequenceState::kOnloading);
  if (plan.slices.empty() && plan.onload.empty() && view_.running.empty() && !others_move &&
      !rules_.all_on_host && !rules_.repaired && !std::exchange(memory_.told_lone, true)) {
    log::warn(
        "only sequences on the host are left, and the accelerator has no room for the first of "
        "them; they go on there, where the policy as published would stop");
  }
}

}  // namespace tandem
