#include "scheduler/policies/omniserve_time.h"

#include <algorithm>

#include "latency/questions.h"
#include "scheduler/pace.h"

namespace tandem::omniserve {
namespace {

// First tokens are promised by the pace of the targets that limit steps. A first token would come
// late in the steps of the budget, once such a target is gone, or where a sequence that is late
// makes steps shorter.
bool first_tokens_are_at_risk(const Setting& setting, const StepTime& time,
                              const latency::StepShape& decodes) {
  const SystemView& view = setting.view;
  const bool is_slow = time.limit == kNoLimit ? setting.options.token_budget < view.budget.tokens
                                              : time.limit < time.pace;
  if (!is_slow) {
    return false;
  }
  const FirstTokens all = first_tokens_of(view);
  if (!all.any_due_ahead() ||
      (time.pace < kNoLimit && all.in_time_tile_by_tile(time.pace, view.now))) {
    return false;
  }
  const Nanos end =
      all.limit(setting.model, replay_rules(setting, time, decodes, Nanos{0}), view.now);
  return end <= (time.limit == kNoLimit ? Nanos{0} : time.limit);
}

// Until when the step must end so that every waiting prompt still gets its first token in time:
// those that end in this step, and the others with what the model says they take after it.
Nanos first_token_limit(const Setting& setting, const StepTime& time,
                        const AfterLatencySensitive& after) {
  const ForcedWork& work = setting.claims.work;
  if (work.decodes + work.prompts + work.offloaded == 0) {
    return kNoLimit;  // no best effort would be held back
  }
  return after.first_tokens.limit(setting.model,
                                  after.first_tokens.any_due_ahead()
                                      ? replay_rules(setting, time, after.decodes, after.lost)
                                      : ReplayRules{},
                                  setting.view.now);
}

}  // namespace

StepTime step_time(const Setting& setting, const latency::StepShape& shape,
                   const latency::StepShape& decodes) {
  StepTime time;
  time.overdue_decodes = setting.claims.overdue_decode_time(setting.model, shape);
  const StepPace asked = step_pace(setting.view, setting.model, shape);
  time.limit = asked.step;
  time.pace = asked.pace;
  time.pace_is_target = asked.is_kept;
  time.first_tokens_at_risk = first_tokens_are_at_risk(setting, time, decodes);
  return time;
}

int32_t max_step_tokens(const Setting& setting, const StepTime& time) {
  const int32_t tokens = setting.view.budget.tokens;
  return time.limit == kNoLimit && !time.first_tokens_at_risk
             ? std::min(setting.options.token_budget, tokens)
             : tokens;
}

ReplayRules replay_rules(const Setting& setting, const StepTime& time,
                         const latency::StepShape& decodes, Nanos lost) {
  const int32_t patience = setting.options.patience_steps;
  const ForcedShare forced = forced_share(setting.model, decodes, setting.claims.work, patience);
  return {.decodes = decodes,
          .limit = time.pace,
          .step_tokens = std::min(max_step_tokens(setting, time),
                                  setting.view.budget.tokens - setting.visitors.tokens),
          .before = forced.at_once + lost,
          .apart = forced.apart,
          .forced_rows = forced.rows,
          .later_rows = forced.later_rows,
          .later = forced.later,
          .patience_steps = patience};
}

BestEffortTime best_effort_time(const Setting& setting, const StepTime& time,
                                const AfterLatencySensitive& after) {
  BestEffortTime found;
  found.first_tokens = first_token_limit(setting, time, after);
  found.limit =
      std::min(time.limit == kNoLimit ? after.remembered : time.limit, found.first_tokens);
  found.unclaimed = before_overdue_decodes(time, found.limit);
  return found;
}

int32_t ChunkRules::chunk(const Setting& setting, const StepDraft& draft,
                          const SequenceView& prompt, Nanos limit, int32_t least) const {
  const int32_t rows_left = draft.builder().tokens_left();
  const int32_t room = std::min(step_tokens - (setting.view.budget.tokens - rows_left),
                                rows_left - setting.visitors.tokens) -
                       kept_rows;
  const int32_t overdue = setting.claims.overdue_decodes;
  const int32_t left = rows_left - overdue - (kept_rows > overdue ? 1 : 0);
  latency::StepShape shape = draft.shape();
  latency::add_visits(shape, int64_t{setting.model.layers()} + 1, visits);
  return latency::largest_chunk(setting.model, shape,
                                {.prompt = prompt.rest(),
                                 .max_tokens = std::max(room, std::min(least, left)),
                                 .least_tokens = least},
                                limit);
}

}  // namespace tandem::omniserve
