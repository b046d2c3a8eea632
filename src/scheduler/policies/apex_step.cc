// APEX's part of a planning: whether offloaded tokens join in two lanes, by overlap, or not at all.
#include <algorithm>
#include <array>
#include <utility>

#include "scheduler/overlap_times.h"
#include "scheduler/policies/neo_step.h"

namespace tandem {
namespace {

constexpr double kKeepsForm = 1.02;  // so much worse may the form of the last step be (apex_plus)

}  // namespace

HostRows NeoStep::host_rows() const {
  HostRows all{.rows = under_way_[0].visitors + under_way_[1].visitors,
               .context = under_way_[0].context + under_way_[1].context};
  for (const HostDecode& decode : decodes_) {
    ++all.rows;
    all.context += decode.context;
  }
  return all;
}

StepPlan NeoStep::plan_apex() {
  const bool is_published = rules_.join == HostJoin::kByApex;
  const HostRows on_host = host_rows();
  Choice choice = resident_choice();
  std::optional<LanesInequality> sides;
  if (on_host.rows > 0) {
    const latency::StepShape residents = shape_with(prompts_.size());
    const LanesInequality weighed =
        lanes_inequality(model_, host_times_, residents, on_host,
                         is_published ? rules_.mixed_window : MixedWindow::kReal);
    if (residents.decode_rows > 0) {
      sides = weighed;
    }
    if (residents.empty()) {
      choice = lanes_choice(
          ways_in_lanes().front());  // nothing for a lane to be hidden behind, and none sits out
    } else {
      choice = is_published ? published_choice(choice, weighed.holds()) : best_choice();
    }
  }
  StepPlan plan = finish(choice);
  plan.inequality = sides;
  memory_.form = choice.form;
  if (choice.form != StepForm::kTwoLanes && !plan.slices.empty()) {
    memory_.limiter.count_step();
    memory_.host_waits.max_step = std::max(memory_.host_waits.max_step, choice.time);
  }
  return plan;
}

// ---------------------------------------------------------------- overlap

// `step`: without new visitors. Decision 2: one of two classes hops only if its target allows it.
bool NeoStep::joins_overlap(const Candidate& candidate, Nanos step) const {
  if (rules_.join == HostJoin::kByApex) {
    return true;
  }
  const SequenceView& sequence = *candidate.sequence;
  if (waits_->must_wait(sequence)) {
    return false;
  }
  const bool in_time = sequence.tpot / (model_.step_times().layers() + 1) >= step;
  return in_time || (sequence.service_class == kBe && candidate.decode.overdue);
}

// How many tokens may enter; negative: more are on their way than may be. As published all of them
// are a single cohort, so none enters while others are on their way.
int64_t NeoStep::places_in_overlap() const {
  const int64_t under_way = under_way_[0].visitors + under_way_[1].visitors;
  if (rules_.join == HostJoin::kByApex) {
    return under_way == 0 ? std::ssize(candidates_) : 0;
  }
  return memory_.limiter.limit() - under_way;
}

// Which candidates enter, but for the step's limit of time. The oldest overdue one finds a place
// where the others' are used up.
std::vector<size_t> NeoStep::overlap_joiners(Entering entering, Nanos step) const {
  std::vector<size_t> joiners;
  const int64_t rows = int64_t{draft_.builder().tokens_left()} - prompt_rows_;
  const int64_t places = places_in_overlap();
  for (size_t i = 0; i < candidates_.size() && std::ssize(joiners) < rows; ++i) {
    const bool is_oldest_overdue = candidates_[i].decode.overdue && joiners.empty() && places >= 0;
    const bool has_place = entering == Entering::kSome && std::ssize(joiners) < places;
    if ((is_oldest_overdue || has_place) && joins_overlap(candidates_[i], step)) {
      joiners.push_back(i);
    }
  }
  return joiners;
}

// Beside those under way.
OverlapStep NeoStep::overlap_with(const latency::StepShape& residents,
                                  std::span<const size_t> joiners) const {
  HostRows joining{.rows = under_way_[0].visitors + under_way_[1].visitors + std::ssize(joiners),
                   .context = under_way_[0].context + under_way_[1].context};
  for (const size_t joiner : joiners) {
    joining.context += decodes_[joiner].context;
  }
  return overlap_step(model_.step_times(), host_times_, residents, joining,
                      rules_.join == HostJoin::kByApex ? OverlapJoin::kCohort : OverlapJoin::kEach);
}

// Tokens enter in the second lane: should a later step have lanes, they are beside no resident.
NeoStep::Choice NeoStep::overlap_choice(Entering entering) const {
  Choice choice{.prompts = prompts_.size(), .placement = {}};
  choice.placement.lane.assign(decodes_.size(), kHeld);
  Lanes& lanes = choice.placement.lanes;
  lanes[0].residents = shape_with(choice.prompts);
  std::vector<size_t> joiners;
  if (entering != Entering::kNone) {
    joiners = overlap_joiners(entering, model_.step_times().step_time(lanes[0].residents));
  }
  // As many as the step's limit allows.
  size_t within = joiners.size();
  OverlapStep planned = overlap_with(lanes[0].residents, joiners);
  if (planned.time > step_limit_ && within > 0) {
    const std::span<const size_t> all(joiners);
    size_t beyond = std::exchange(within, 0);
    while (beyond - within > 1) {
      const size_t middle = within + (beyond - within) / 2;
      const bool fits = overlap_with(lanes[0].residents, all.first(middle)).time <= step_limit_;
      (fits ? within : beyond) = middle;
    }
    joiners.resize(within);
    planned = overlap_with(lanes[0].residents, joiners);
  }
  for (const size_t joiner : joiners) {
    choice.placement.lane[joiner] = 1;
  }
  choice.placement.placed = std::ssize(joiners);
  choice.credit = credit_of(lanes, choice.prompts) + planned.tokens;
  choice.time = planned.time;
  const bool is_overlap = !joiners.empty() || under_way_[0].visitors + under_way_[1].visitors > 0;
  choice.form = is_overlap ? StepForm::kOverlapped : StepForm::kResident;
  return choice;
}

// ---------------------------------------------------------------- as published

// Whether there are enough offloaded rows for the host to begin with (APEX 4.2).
bool NeoStep::host_begins(const Choice& resident, const Choice& overlap) const {
  if (under_way_[0].visitors + under_way_[1].visitors > 0) {
    return true;
  }
  if (rules_.min_host_rows > 0) {
    const latency::StepShape& shape = overlap.placement.lanes[0].residents;
    const int64_t requests = int64_t{shape.decode_rows} + shape.prefill_slices;
    return host_rows().rows >= rules_.min_host_rows * requests;
  }
  return overlap.rate() > overlap_choice(Entering::kNone).rate() ||
         lanes_choice(ways_in_lanes().front()).rate() > resident.rate();
}

// In a step with lanes tokens under way pass all the stages that they have left: beyond the host's
// window that would hold up the residents for long.
bool NeoStep::under_way_fits_lanes() const {
  Lanes lanes = ways_in_lanes().front().lanes;
  lanes[0].residents = shape_with(prompts_.size());
  return model_.slack(lanes).least() >= Nanos{0};
}

// Algorithm 1. Where the inequality holds and yet no token hides in the second lane, overlap. It
// takes the host for saturated: unless a threshold says that enough sequences are there, lanes must
// also give more than the accelerator alone with the tokens at hand.
NeoStep::Choice NeoStep::published_choice(const Choice& resident, bool lanes_hold) const {
  Choice overlap = overlap_choice(Entering::kSome);
  if (!host_begins(resident, overlap)) {
    return resident;
  }
  if (lanes_hold && under_way_fits_lanes()) {
    Choice lanes = lanes_choice(ways_in_lanes().front());
    const bool enough = rules_.min_host_rows > 0 || lanes.rate() > resident.rate();
    if (lanes.placement.lanes[1].visitors > 0 && enough) {
      return lanes;
    }
  }
  return overlap;
}

// ---------------------------------------------------------------- apex_plus

// Without new tokens.
NeoStep::Choice NeoStep::lanes_of_under_way(const LanesUnderWay& under_way) const {
  Choice choice{.prompts = prompts_.size(), .placement = {}, .form = StepForm::kTwoLanes};
  choice.placement.lane.assign(decodes_.size(), kHeld);
  choice.placement.lanes = under_way.lanes;
  choice.placement.lanes[0].residents = shape_with(choice.prompts);
  return priced_lanes(std::move(choice), under_way);
}

// The form that gives the most output tokens beyond what its time is worth, within the targets. All
// are compared with the step that no token enters but the oldest overdue token; tokens under way
// make their hop in it.
NeoStep::Choice NeoStep::best_choice() const {
  const Choice base = overlap_choice(Entering::kNone);
  const double worth = worth_of_time(base);
  const auto value = [&](const Choice& choice) {
    return choice.credit * (choice.form == memory_.form ? kKeepsForm : 1) -
           worth * static_cast<double>(choice.time.count());
  };
  Choice best = any_overdue() ? overlap_choice(Entering::kOverdue) : base;
  double best_value = value(best);
  const auto weigh = [&](Choice choice) {
    const Lanes& lanes = choice.placement.lanes;
    const bool is_lanes = choice.form == StepForm::kTwoLanes;
    const bool is_possible = is_lanes ? lanes[0].visitors + lanes[1].visitors > 0 &&
                                            choice.time <= longest_lanes(base) &&
                                            !makes_first_token_late(choice, base)
                                      : choice.time <= step_limit_;
    if (!is_possible) {
      return;
    }
    if (const double candidate = value(choice); candidate > best_value) {
      best_value = candidate;
      best = std::move(choice);
    }
  };
  if (!candidates_.empty()) {
    weigh(overlap_choice(Entering::kSome));
    for (const LanesUnderWay& way : ways_in_lanes()) {
      weigh(lanes_choice(way));
    }
  }
  if (under_way_[0].visitors + under_way_[1].visitors > 0) {
    for (const LanesUnderWay& way : ways_in_lanes()) {
      weigh(lanes_of_under_way(way));
    }
  }
  return best;
}

// As measured. In steps with lanes the model says what the host can take, and tokens are placed by
// it.
bool NeoStep::host_is_late() const {
  return rules_.join == HostJoin::kByApexPlus && memory_.form != StepForm::kTwoLanes &&
         memory_.limiter.limit() < std::ssize(view_.offloaded);
}

// Where the rules are repaired: beside residents, if the host is late, or would be with this prompt
// as the times say that are believed: with each of its sequences in every step.
bool NeoStep::host_is_the_limit(const SequenceView& prompt) const {
  if (!rules_.repaired || view_.running.empty()) {
    return false;
  }
  if (host_is_late()) {
    return true;
  }
  Lanes lanes;
  lanes[1] = {.residents = {}, .visitors = 1, .context = prompt.known_tokens};
  const auto count_host = [&](const SequenceView& sequence) {
    lanes[1].visitors += 1;
    lanes[1].context += sequence.known_tokens;
  };
  for (const SequenceView& sequence : view_.offloaded) {
    if (sequence.state != SequenceState::kOnloading) {
      count_host(sequence);
    }
  }
  for (const SequenceView& sequence : view_.running) {
    if (is_host_bound(sequence)) {
      count_host(sequence);
    } else if (sequence.decodes()) {
      lanes[0].residents.add_decode(sequence.known_tokens);
    }
  }
  if (host_times_ == nullptr || lanes[0].residents.empty()) {
    return false;
  }
  if (rules_.join == HostJoin::kByNeo || memory_.form == StepForm::kTwoLanes) {
    return model_.slack(lanes).of_both < Nanos{0};
  }
  return host_times_->attention_time(lanes[1].visitors, lanes[1].context) >
         model_.step_times().step_time(lanes[0].residents);
}

}  // namespace tandem
