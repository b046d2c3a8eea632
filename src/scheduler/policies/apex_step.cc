// APEX's part of a planning: whether offloaded tokens join in two lanes, by overlap, or not at all.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "scheduler/overlap_times.h"
#include "scheduler/policies/neo_step.h"

namespace tandem {
namespace {

constexpr double kKeepsForm = 1.02;  // so much worse may the form of the last step be (apex_plus)

double in_nanos(Nanos time) { return static_cast<double>(time.count()); }

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
    if (residents.empty() && !comes_back()) {
      choice = lanes_choice(
          ways_in_lanes().front());  // nothing for a lane to be hidden behind, and none sits out
    } else if (!residents.empty()) {
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

// The forms in which tokens may join, but for `base`, in which none enters.
std::vector<NeoStep::Choice> NeoStep::joining_choices(const Choice& base) const {
  std::vector<Choice> choices;
  const auto offer = [&](Choice choice) {
    const Lanes& lanes = choice.placement.lanes;
    const bool is_possible = choice.form == StepForm::kTwoLanes
                                 ? lanes[0].visitors + lanes[1].visitors > 0 &&
                                       choice.time <= longest_lanes(base) &&
                                       !makes_first_token_late(choice, base)
                                 : choice.time <= step_limit_;
    if (is_possible) {
      choices.push_back(std::move(choice));
    }
  };
  const bool takes_lanes = rules_.only_form != StepForm::kOverlapped;
  if (!candidates_.empty() && rules_.only_form != StepForm::kTwoLanes) {
    offer(overlap_choice(Entering::kSome));
  }
  if (!candidates_.empty() && takes_lanes) {
    for (const LanesUnderWay& way : ways_in_lanes()) {
      offer(lanes_choice(way));
    }
  }
  if (takes_lanes && under_way_[0].visitors + under_way_[1].visitors > 0) {
    for (const LanesUnderWay& way : ways_in_lanes()) {
      offer(lanes_of_under_way(way));
    }
  }
  return choices;
}

// Output tokens per time of the decodes, with a token under way of each offloaded sequence, in a
// step whose prompts add `for_prompts` to each layer.
double NeoStep::rate_by_overlap(Nanos for_prompts) const {
  const latency::StepShape decodes = resident_decodes();
  const HostRows on_host = host_rows();
  const int32_t layers = model_.step_times().layers();
  const OverlapStep alone = overlap_step(model_.step_times(), host_times_, decodes, on_host);
  const Nanos time = alone.time + layers * for_prompts;
  // Where the host is late, a longer step has it do more.
  const double tokens = std::min(alone.tokens * in_nanos(time) / in_nanos(alone.time),
                                 static_cast<double>(on_host.rows) / (layers + 1));
  return (decodes.decode_rows + tokens) / in_nanos(time);
}

// The form that gives the most output tokens beyond what its time is worth, within the targets. All
// are compared with the step that no token enters but the oldest overdue token; tokens under way
// make their hop in it. Time counts at the rate of the best form: at the rate of the residents
// alone the form with the longer step would win even if its rate is lower.
NeoStep::Choice NeoStep::best_choice() const {
  const Choice base = overlap_choice(Entering::kNone);
  std::vector<Choice> choices = joining_choices(base);
  double worth = std::max(worth_of_time(base), rate_by_overlap(Nanos{0}));
  for (const Choice& choice : choices) {
    worth = std::max(worth, choice.rate());
  }
  const auto value = [&](const Choice& choice) {
    return choice.credit * (choice.form == memory_.form ? kKeepsForm : 1) -
           worth * static_cast<double>(choice.time.count());
  };
  if (!rules_.only_form.has_value() || choices.empty()) {
    choices.insert(choices.begin(), any_overdue() ? overlap_choice(Entering::kOverdue) : base);
  }
  return *std::ranges::max_element(choices, {}, value);
}

// As measured. In steps with lanes the model says what the host can take, and tokens are placed by
// it.
bool NeoStep::host_is_late() const {
  return rules_.join == HostJoin::kByApexPlus && memory_.form != StepForm::kTwoLanes &&
         memory_.limiter.limit() < std::ssize(view_.offloaded);
}

// Output tokens per time of a step with lanes whose prompts add `for_prompts` to each layer, if all
// offloaded sequences join that hide, half of them in each lane. All of the prompts' time counts as
// attention, which is in the windows of both lanes. Their dense stages are in one window only, but
// a placement by slack would give that lane more than half of the sequences.
double NeoStep::rate_of_full_lanes(const Lanes& lanes, Nanos for_prompts) const {
  const Lane& on_host = lanes[1];
  const auto with = [&](int64_t visitors) {
    Lanes some = lanes;
    for (size_t lane = 0; lane < some.size(); ++lane) {
      some[lane].visitors = (visitors + static_cast<int64_t>(lane)) / 2;
      some[lane].context = on_host.context * some[lane].visitors / on_host.visitors;
    }
    return some;
  };
  const auto times_of = [&](const Lanes& some) {
    LayerTimes times = model_.times(some);
    times[0].attention += for_prompts;
    return times;
  };
  int64_t hidden = 0;
  for (int64_t beyond = on_host.visitors + 1; beyond - hidden > 1;) {
    const int64_t middle = hidden + (beyond - hidden) / 2;
    (model_.slack(times_of(with(middle))).least() >= Nanos{0} ? hidden : beyond) = middle;
  }
  const Lanes full = with(hidden);
  const int32_t layers = model_.step_times().layers();
  const Nanos time = layers * model_.layer_time(times_of(full)) + model_.beside_layers(full);
  return static_cast<double>(lanes[0].residents.decode_rows + hidden) / in_nanos(time);
}

// Whether overlap, with the best-effort prompts that wait and find room on the host, would give
// more output tokens than lanes do now, in which the host is busy. It takes some (layers + 1) times
// as many sequences until overlap has the host busy: to wait with prompts until the host has time
// would leave the steps with lanes for good. `lanes`: the resident decodes, and all of the host
// with `prompt` in the second one.
bool NeoStep::overlap_would_give_more(const SequenceView& prompt, const Lanes& lanes) const {
  const latency::StepShape& residents = lanes[0].residents;
  const Lane& on_host = lanes[1];
  const auto waiting = static_cast<int64_t>(
      view_.queue != nullptr
          ? view_.queue->size(kBe)
          : std::ranges::count(view_.waiting, kBe, &SequenceView::service_class));
  const int64_t room = (host_limit_ - host_used_) / draft_.planner().blocks_to_begin(prompt);
  const Nanos attends = host_times_->attention_time(on_host.visitors, on_host.context);
  const Nanos step = model_.step_times().step_time(residents);
  const int64_t in_time = on_host.visitors * step.count() / std::max(attends.count(), int64_t{1});
  const int64_t rows =
      std::min(on_host.visitors + std::clamp(room - 1, int64_t{0}, waiting), in_time);
  const OverlapStep overlap =
      overlap_step(model_.step_times(), host_times_, residents,
                   {.rows = rows, .context = on_host.context * rows / on_host.visitors});
  return (residents.decode_rows + overlap.tokens) / in_nanos(overlap.time) >
         rate_of_full_lanes(lanes, Nanos{0});
}

// Time that the prompts of this step and this one, as far as rows and target let it, add to a layer
// beside these residents.
Nanos NeoStep::added_by(const SequenceView& prompt, const Lane& beside) const {
  Lane with{.residents = beside.residents};
  for (const Prompt& begun : prompts_) {
    with.residents.add_prefill(begun.sequence->computed_tokens, begun.tokens, 0);
  }
  with.residents.add_prefill(prompt.computed_tokens,
                             std::min(prompt.pending_tokens(), view_.budget.tokens - prompt_rows_),
                             0);
  const LaneTimes before = model_.times(Lane{.residents = beside.residents});
  const LaneTimes after = model_.times(with);
  const Nanos added = after.dense + after.attention - before.dense - before.attention;
  if (chunk_limit_ == Nanos::max()) {
    return added;
  }
  const latency::StepTimeModel& times = model_.step_times();
  const Nanos left = std::max(chunk_limit_ - times.step_time(beside.residents), Nanos{0});
  return std::min(added, left / times.layers());
}

// Where the rules are repaired: beside residents, if the host is late, or would be with this prompt
// as the times say that are believed: with each of its sequences in every step. While lanes are
// taken the steps count as having the prompts of this step. If the mean of the last steps counted,
// the host would get fewer sequences because there are few prompts, and there would be few prompts
// because it has no time for their sequences.
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
  for (const Prompt& begun : prompts_) {
    if (begun.host_bound) {
      count_host(*begun.sequence);
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
  const Nanos mean = memory_.prompts_per_layer;
  const bool by_neo = rules_.join == HostJoin::kByNeo;
  if (by_neo || memory_.form == StepForm::kTwoLanes) {
    const Nanos for_prompts =
        by_neo && !memory_.had_lanes ? mean : std::max(mean, added_by(prompt, lanes[0]));
    return model_.slack(lanes).of_both + for_prompts < Nanos{0} &&
           (by_neo || !overlap_would_give_more(prompt, lanes));
  }
  return host_times_->attention_time(lanes[1].visitors, lanes[1].context) >
         model_.step_times().step_time(lanes[0].residents) + model_.step_times().layers() * mean;
}

}  // namespace tandem
