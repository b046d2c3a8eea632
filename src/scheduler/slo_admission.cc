#include "scheduler/slo_admission.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "latency/questions.h"
#include "scheduler/margins.h"
#include "scheduler/pace.h"

namespace tandem {
namespace {

constexpr Nanos kNone = Nanos::max();
// The closed form is a lower bound. Up to this part of the target beyond the target, the replay
// gives a better forecast.
constexpr int64_t kNearTarget = 4;
// A client whose request waits for others to end asks again after this at the latest.
constexpr Nanos kLongestRetry = std::chrono::minutes(10);
// If a promise needs the end of answers, their expected length is the mean and this number of
// standard deviations.
constexpr double kSureDeviations = 2;

// b >= 0.
Nanos later(Nanos a, Nanos b) { return a > kNone - b ? kNone : a + b; }

// What is left of a TTFT target for planning.
Nanos planned(Nanos ttft) { return planned_due(Nanos{0}, ttft); }

bool goes_before(const AdmittedPrompt& prompt, const AdmissionAsk& ask) {
  return prompt.level <= ask.level;
}

PromptAhead ahead_of(const AdmittedPrompt& prompt, Nanos start) {
  const Nanos due = planned_due(prompt.arrived, prompt.first_token_due);
  return {.rest = prompt.rest, .due = due == kNone ? kNone : due - start};
}

PromptAhead ahead_of(const AdmissionAsk& ask) { return {.rest = ask.rest(), .due = kNone}; }

void add_decodes(latency::StepShape& shape, int64_t context, int32_t count) {
  shape.decode_rows += count;
  shape.decode_context += context * count;
  shape.logit_rows += count;
}

}  // namespace

SloAdmission::SloAdmission(const AdmissionRules& rules, const latency::StepTimeModel& model,
                           const StepForecast& forecast, const OverdueHead& head)
    : rules_(rules), model_(model), forecast_(forecast), head_(head) {
  CHECK(rules.token_budget > 0 && rules.patience_steps > 0,
        "a token budget of {}, a patience of {} steps", rules.token_budget, rules.patience_steps);
}

AdmissionVerdict SloAdmission::decide(const AdmissionView& view, const AdmissionAsk& ask) {
  AdmissionVerdict verdict;
  if (ask.service_class != ServiceClass::kLatencySensitive) {
    return verdict;
  }
  CHECK(ask.prompt_tokens > ask.cached_tokens && ask.cached_tokens >= 0 && ask.choices > 0,
        "an ask of {} tokens, {} of them cached, and {} choices", ask.prompt_tokens,
        ask.cached_tokens, ask.choices);
  count(view);
  if (ask.ttft == kNone && ask.tpot == kNone && view.least_tpot == kNone && !sums_.any_due) {
    return verdict;
  }
  verdict.answer = AdmissionAnswer::kRefuse;
  const Limits limits = limits_for(view, ask);
  const Nanos waited = std::max(view.now - ask.arrived, Nanos{0});  // the view may be older
  const Nanos left = ask.ttft == kNone ? kNone : planned(ask.ttft) - waited;
  const int64_t places = missing_places(view, ask);
  const int64_t blocks = missing_blocks(view, ask);
  // `wait` ends when running answers have left the missing places and blocks. A request that
  // overtakes others would take the places and blocks for which they wait.
  const bool lacks_room = places > 0 || blocks > 0;
  const bool is_last = view.prompts.empty() || goes_before(view.prompts.back(), ask);
  const Nanos wait = !lacks_room ? Nanos{0}
                     : is_last   ? wait_for_room(view, limits, blocks, places)
                                 : kNone;
  if (lacks_room && (left == kNone || wait > left)) {
    verdict.reason = places > 0 ? RefusalReason::kPlaces : RefusalReason::kBlocks;
    return refuse(view, ask, verdict);
  }
  verdict.step_time = grown_step(view, ask);
  if (verdict.step_time > limits.tpot) {
    verdict.reason = RefusalReason::kTokenTime;
    return refuse(view, ask, verdict);
  }
  verdict.reason = RefusalReason::kFirstToken;
  if (const Nanos soonest = later(soonest_first_token(view, ask, limits), wait);
      left < kNone && soonest > left + left / kNearTarget) {
    verdict.ttft = later(soonest, waited);
    return refuse(view, ask, verdict);
  }
  Walked walked = walk(view, ask, limits);
  walked.first_token = later(walked.first_token, wait);
  verdict.ttft = later(walked.first_token, waited);
  if (walked.first_token > left) {
    return refuse(view, ask, verdict);
  }
  if (walked.late > Nanos{0} && walked.late > late_without(view, ask, limits)) {
    verdict.reason = RefusalReason::kOthersFirstToken;
    return refuse(view, ask, verdict, walked.late_until);
  }
  if (walked.longest > limits.tpot) {
    verdict.reason = RefusalReason::kTokenTime;
    verdict.step_time = walked.longest;
    return refuse(view, ask, verdict);
  }
  return {.answer = AdmissionAnswer::kAccept,
          .reason = RefusalReason::kNone,
          .ttft = verdict.ttft,
          .step_time = verdict.step_time,
          .retry_after = {}};
}

// ---------------------------------------------------------------- what there is

void SloAdmission::count_growth(int32_t known_tokens, int32_t output_tokens, int32_t max_tokens,
                                int32_t choices, Sums& sums) const {
  const double rest = lengths_.rest(output_tokens, max_tokens);
  const auto most = static_cast<double>(std::max(max_tokens - output_tokens, 1));
  sums.growth_tokens += choices * rest;
  sums.growth_variance += rest < most ? choices * lengths_.variance() : 0;
  sums.most_growth += choices * most;
  sums.sequences += choices;
  add_decodes(sums.grown, known_tokens + static_cast<int64_t>(rest), choices);
}

void SloAdmission::count(const AdmissionView& view) {
  if (sums_.version != view.version || sums_.prompts > view.prompts.size()) {
    Sums sums;  // in registers while it grows
    sums.version = view.version;
    for (const AdmittedDecode& decode : view.decodes) {
      sums.decodes.add_decode(decode.known_tokens);
      sums.held_blocks += decode.held_blocks;
      count_growth(decode.known_tokens, decode.output_tokens, decode.max_tokens, 1, sums);
    }
    sums_ = sums;
  }
  for (; sums_.prompts < view.prompts.size(); ++sums_.prompts) {
    const AdmittedPrompt& prompt = view.prompts[sums_.prompts];
    const int32_t known = prompt.rest.known_tokens();
    const int64_t blocks = (known + view.block_tokens - 1) / view.block_tokens;
    sums_.held_blocks += prompt.held_blocks;
    sums_.blocks_to_begin += std::max<int64_t>(blocks - prompt.held_blocks, 0);
    sums_.pending_tokens += prompt.rest.pending_tokens;
    sums_.longest_prompt = std::max<int64_t>(sums_.longest_prompt, known);
    sums_.waiting_sequences +=
        std::cmp_less(sums_.prompts, view.running_prompts) ? 0 : prompt.rest.choices;
    sums_.any_due = sums_.any_due || prompt.first_token_due < kNone;
    count_growth(known, prompt.output_tokens, prompt.max_tokens, prompt.rest.choices, sums_);
  }
}

int64_t SloAdmission::missing_places(const AdmissionView& view, const AdmissionAsk& ask) const {
  if (sums_.sequences == 0) {
    return 0;  // one request fits: that was seen to
  }
  return sums_.sequences + ask.choices -
         std::min(view.places - head_.places, view.step_tokens - kTileTokens);
}

int64_t SloAdmission::missing_blocks(const AdmissionView& view, const AdmissionAsk& ask) const {
  if (sums_.sequences == 0) {
    return 0;  // one request fits: that was seen to
  }
  const double rest = lengths_.rest(0, ask.max_tokens);
  const double most = sums_.most_growth + static_cast<double>(ask.choices) * ask.max_tokens;
  const double variance =
      sums_.growth_variance + (rest < ask.max_tokens ? ask.choices * lengths_.variance() : 0);
  const double growth =
      std::min(most, sums_.growth_tokens + ask.choices * rest + 2 * std::sqrt(variance));
  // The last block of each is half full.
  const int64_t blocks = (ask.prompt_tokens + view.block_tokens - 1) / view.block_tokens +
                         static_cast<int64_t>(growth) / view.block_tokens +
                         (sums_.sequences + ask.choices + 1) / 2;
  return sums_.held_blocks + sums_.blocks_to_begin + blocks -
         (view.total_blocks - std::min(head_.blocks, view.total_blocks));
}

// ---------------------------------------------------------------- time

// Until the step in flight ends. Visitors may fill it up to its limit.
Nanos SloAdmission::step_rest(const AdmissionView& view) const {
  if (!view.step_began.has_value()) {
    return Nanos{0};
  }
  Nanos whole = model_.step_time(forecast_.shape);
  if (view.offloaded > 0 && forecast_.limit < kNone) {
    whole = std::max(whole, forecast_.limit);
  }
  return std::max(*view.step_began + whole - view.now, Nanos{0});
}

ForcedWork SloAdmission::forced_work(const AdmissionView& view) const {
  return {.decodes = view.best_effort_decodes,
          .context = view.best_effort_context,
          .prompts = view.best_effort_prompts,
          .prompt_tokens = view.best_effort_prompt_tokens,
          .offloaded = view.offloaded};
}

// How long steps with prompts may be beside that target, and how many rows they have.
void SloAdmission::limit_steps(const AdmissionView& view, Nanos tpot, Limits& limits) const {
  limits.step = pace_of(tpot);
  const int32_t visitors = std::min(view.offloaded, view.step_tokens / kVisitorShareOfTokens);
  limits.step_tokens = view.step_tokens - visitors;
  if (limits.step == kNone) {
    limits.step_tokens = std::min(limits.step_tokens, rules_.token_budget);
  }
}

SloAdmission::Limits SloAdmission::limits_for(const AdmissionView& view,
                                              const AdmissionAsk& ask) const {
  Limits limits;
  limits.tpot = std::min(view.least_tpot, ask.tpot);
  limit_steps(view, limits.tpot, limits);
  limits.forced = forced_share(model_, sums_.decodes, forced_work(view), rules_.patience_steps);
  limits.before = step_rest(view) + limits.forced.at_once;
  // Beside a new block, or the copy of one, for each decode.
  const int64_t wanted = sums_.blocks_to_begin + std::ssize(view.decodes) +
                         view.best_effort_decodes +
                         (ask.prompt_tokens + view.block_tokens) / view.block_tokens;
  if (wanted > view.free_blocks || sums_.waiting_sequences + ask.choices > view.free_places) {
    // Best effort makes room: with one tier in a step, with two when it is copied.
    const Nanos step =
        limits.step < kNone ? limits.step : model_.step_time(sums_.decodes) + limits.forced.at_once;
    limits.before += step * (view.offloaded > 0 ? 2 : 1);
  }
  return limits;
}

ReplayRules SloAdmission::rules_for(const Limits& limits) const {
  return {.decodes = sums_.decodes,
          .limit = limits.step,
          .step_tokens = limits.step_tokens,
          .before = {},  // counted by its callers: a line is kept while it goes on
          .apart = limits.forced.apart,
          .forced_rows = limits.forced.rows,
          .later_rows = limits.forced.later_rows,
          .later = limits.forced.later,
          .patience_steps = rules_.patience_steps};
}

// Of a step without prompts, when everybody has grown.
Nanos SloAdmission::grown_step(const AdmissionView& view, const AdmissionAsk& ask) const {
  latency::StepShape grown = sums_.grown;
  add_decodes(grown, ask.prompt_tokens + static_cast<int64_t>(lengths_.rest(0, ask.max_tokens)),
              ask.choices);
  const Nanos forced = forced_time(model_, grown, forced_work(view));
  return model_.step_time(grown) + forced / rules_.patience_steps;
}

// Closed form: no sooner can the replay end. The rows of the line, attention to their prompts left
// out, take at least the time that the cheapest number of rows a step takes for each of them. That
// number is looked for among some; those between two of them are no cheaper than the larger number
// of rows in the time of the smaller.
Nanos SloAdmission::soonest_first_token(const AdmissionView& view, const AdmissionAsk& ask,
                                        const Limits& limits) const {
  int64_t tokens = ask.rest().pending_tokens;
  if (view.prompts.empty() || goes_before(view.prompts.back(), ask)) {
    tokens += sums_.pending_tokens;
  } else {
    for (size_t i = 0; i < view.prompts.size(); ++i) {
      const bool before =
          std::cmp_less(i, view.running_prompts) || goes_before(view.prompts[i], ask);
      tokens += before ? view.prompts[i].rest.pending_tokens : 0;
    }
  }
  const auto time_of = [&](int32_t rows) {
    latency::StepShape step = sums_.decodes;
    step.prefill_rows = rows;
    step.prefill_slices = 1;
    return model_.step_time(step);
  };
  int32_t rows =
      std::max(limits.step_tokens - static_cast<int32_t>(sums_.decodes.rows()), kTileTokens);
  rows = static_cast<int32_t>(std::min<int64_t>(rows, tokens));
  const double least = static_cast<double>(time_of(1).count());
  double cheapest = std::numeric_limits<double>::infinity();  // nanoseconds a row
  while (rows > 1 && least < cheapest * rows) {
    const int32_t fewer = rows - std::max(rows / 8, 1);
    const Nanos shorter = time_of(fewer);
    // A step of more than a tile is never longer than the limit.
    if (fewer < kTileTokens || shorter <= limits.step) {
      cheapest = std::min(cheapest, static_cast<double>(shorter.count()) / rows);
    }
    rows = fewer;
  }
  cheapest = std::min(cheapest, least);
  const double whole = cheapest * static_cast<double>(tokens);
  return whole >= static_cast<double>(kLongestTarget.count())
             ? kNone
             : limits.before + Nanos{static_cast<int64_t>(whole)};
}

PromptReplay SloAdmission::walk_line(const AdmissionView& view, const Limits& limits) const {
  const Nanos start = view.now + limits.before;
  PromptReplay replay(model_, rules_for(limits));
  for (const AdmittedPrompt& prompt : view.prompts) {
    replay.add(ahead_of(prompt, start));
  }
  return replay;
}

// The line as it is, without a newcomer. It is walked anew only where the view is another one, or
// its steps are.
const PromptReplay& SloAdmission::line_of(const AdmissionView& view, const Limits& limits) {
  const Nanos start = view.now + limits.before;
  if (line_.version != view.version || line_.limit != limits.step ||
      line_.step_tokens != limits.step_tokens || line_.start != start ||
      line_.prompts > view.prompts.size()) {
    line_ = {.version = view.version,
             .prompts = 0,
             .limit = limits.step,
             .step_tokens = limits.step_tokens,
             .start = start,
             .replay = PromptReplay(model_, rules_for(limits))};
  }
  for (; line_.prompts < view.prompts.size(); ++line_.prompts) {
    line_.replay->add(ahead_of(view.prompts[line_.prompts], line_.start));
  }
  return *line_.replay;
}

SloAdmission::Walked SloAdmission::walk(const AdmissionView& view, const AdmissionAsk& ask,
                                        const Limits& limits) {
  const Nanos start = view.now + limits.before;
  const auto walked = [&](PromptReplay replay, std::span<const AdmittedPrompt> behind) {
    const int32_t step = replay.add(ahead_of(ask));
    for (const AdmittedPrompt& prompt : behind) {
      replay.add(ahead_of(prompt, start));
    }
    replay.finish();
    const Nanos end = replay.end_of(step);
    return Walked{.first_token = later(end, limits.before),
                  .late = replay.late(),
                  .late_until = later(replay.late_until(), limits.before),
                  .longest = replay.longest_step()};
  };
  if (view.prompts.empty() || goes_before(view.prompts.back(), ask)) {
    return walked(line_of(view, limits), {});
  }
  // It overtakes: those behind it are looked at as far as they have targets.
  const auto waiting = view.prompts.subspan(static_cast<size_t>(view.running_prompts));
  const auto place = std::ranges::find_if_not(
      waiting, [&](const AdmittedPrompt& prompt) { return goes_before(prompt, ask); });
  std::span<const AdmittedPrompt> behind(place, waiting.end());
  while (!behind.empty() && behind.back().first_token_due == kNone) {
    behind = behind.first(behind.size() - 1);
  }
  PromptReplay replay(model_, rules_for(limits));
  for (const AdmittedPrompt& prompt :
       view.prompts.first(static_cast<size_t>(view.running_prompts))) {
    replay.add(ahead_of(prompt, start));
  }
  for (const AdmittedPrompt& prompt : std::span(waiting.begin(), place)) {
    replay.add(ahead_of(prompt, start));
  }
  return walked(std::move(replay), behind);
}

// Lateness that the model has caused already does not count against the newcomer, as long as it
// makes none of them later.
Nanos SloAdmission::late_without(const AdmissionView& view, const AdmissionAsk& ask,
                                 const Limits& limits) {
  Limits without = limits;
  const bool shortens = ask.tpot < view.least_tpot;
  if (shortens) {
    limit_steps(view, view.least_tpot, without);
  }
  // The kept line stays the one of the limits that most asks have.
  PromptReplay replay = shortens ? walk_line(view, without) : line_of(view, without);
  replay.finish();
  return replay.late();
}

// ---------------------------------------------------------------- refusals

SloAdmission::Alone SloAdmission::alone(const AdmissionView& view, const AdmissionAsk& ask) const {
  const int32_t step_tokens =
      ask.tpot == kNone ? std::min(view.step_tokens, rules_.token_budget) : view.step_tokens;
  const ForcedShare forced = forced_share(model_, {}, {}, rules_.patience_steps);
  PromptReplay replay(model_, {.decodes = {},
                               .limit = pace_of(ask.tpot),
                               .step_tokens = step_tokens,
                               .later_rows = forced.later_rows,
                               .later = forced.later,
                               .patience_steps = rules_.patience_steps});
  const int32_t step = replay.add(ahead_of(ask));
  replay.finish();
  latency::StepShape grown;
  add_decodes(grown, ask.prompt_tokens + static_cast<int64_t>(lengths_.rest(0, ask.max_tokens)),
              ask.choices);
  return {.first_token = replay.end_of(step), .step_time = model_.step_time(grown)};
}

SloAdmission::Freed SloAdmission::steps_until_freed(const AdmissionView& view, int64_t blocks,
                                                    int64_t places, double deviations) const {
  std::vector<std::pair<double, int64_t>> ends;
  ends.reserve(view.decodes.size());
  for (const AdmittedDecode& decode : view.decodes) {
    const double rest = lengths_.rest(decode.output_tokens, decode.max_tokens);
    const auto bound = static_cast<double>(std::max(decode.max_tokens - decode.output_tokens, 1));
    ends.emplace_back(std::min(bound, rest + deviations * std::sqrt(lengths_.variance())),
                      decode.held_blocks);
  }
  std::ranges::sort(ends);
  for (const auto& [rest, held] : ends) {
    blocks -= held;
    --places;
    if (blocks <= 0 && places <= 0) {
      return {.steps = rest, .enough = true};
    }
  }
  return {.steps = ends.empty() ? lengths_.rest(0, std::numeric_limits<int32_t>::max())
                                : ends.back().first,
          .enough = false};
}

// When so many blocks and places are free again, as answers end.
Nanos SloAdmission::until_freed(const AdmissionView& view, int64_t blocks, int64_t places) const {
  const double steps = steps_until_freed(view, blocks, places, 0).steps;
  const auto step = static_cast<double>(model_.step_time(sums_.grown).count());
  return std::min(Nanos{static_cast<int64_t>(std::min(steps * step, 1e15))}, kLongestRetry);
}

Nanos SloAdmission::wait_for_room(const AdmissionView& view, const Limits& limits, int64_t blocks,
                                  int64_t places) const {
  const Freed freed = steps_until_freed(view, blocks, places, kSureDeviations);
  latency::StepShape full = sums_.grown;
  const int32_t rows = std::max(limits.step_tokens - static_cast<int32_t>(full.rows()), 1);
  full.add_prefill(std::max<int64_t>(sums_.longest_prompt - rows, 0), rows, 1);
  const Nanos filled = later(model_.step_time(full), limits.forced.apart);
  const Nanos step = std::max(model_.step_time(sums_.grown), std::min(limits.step, filled));
  const double nanos = freed.steps * static_cast<double>(step.count());
  return !freed.enough || nanos > 1e15 ? kNone : Nanos{static_cast<int64_t>(nanos)};
}

// Until what was missing may be there. Needs a verdict with one of the reasons that pass.
Nanos SloAdmission::time_until(const AdmissionView& view, const AdmissionAsk& ask,
                               const AdmissionVerdict& verdict) const {
  switch (verdict.reason) {
    case RefusalReason::kBlocks:
    case RefusalReason::kPlaces:
      return until_freed(view, missing_blocks(view, ask),
                         std::max<int64_t>(missing_places(view, ask), 1));
    case RefusalReason::kTokenTime:
      return until_freed(view, 0, 1);
    default:
      // The line moves on as fast as time does.
      return ask.ttft == kNone || *verdict.ttft == kNone ? kLongestRetry
                                                         : *verdict.ttft - planned(ask.ttft);
  }
}

// `others_late_until`: of kOthersFirstToken, when the requests that it would make late are done.
AdmissionVerdict SloAdmission::refuse(const AdmissionView& view, const AdmissionAsk& ask,
                                      AdmissionVerdict verdict, Nanos others_late_until) {
  const Alone idle = alone(view, ask);
  const bool never_first = idle.first_token > planned(ask.ttft);
  if (never_first || idle.step_time > ask.tpot) {
    verdict.reason = never_first ? RefusalReason::kNeverFirstToken : RefusalReason::kNeverTokenTime;
    verdict.ttft = idle.first_token == kNone ? std::optional<Nanos>() : idle.first_token;
    verdict.step_time = idle.step_time;
    return verdict;
  }
  const Nanos wait = verdict.reason == RefusalReason::kOthersFirstToken
                         ? others_late_until
                         : time_until(view, ask, verdict);
  const Nanos least = std::max(step_rest(view), Nanos{std::chrono::milliseconds(1)});
  verdict.retry_after = std::min(std::max(wait, least), kLongestRetry);
  if (!verdict.ttft.has_value()) {
    verdict.ttft = later(*verdict.retry_after, idle.first_token);
  }
  if (*verdict.ttft == kNone) {
    verdict.ttft.reset();
  }
  return verdict;
}

}  // namespace tandem
