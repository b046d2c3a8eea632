#include "scheduler/policies/omniserve.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/check.h"
#include "scheduler/best_effort_claims.h"
#include "scheduler/margins.h"
#include "scheduler/policies/omniserve_step.h"
#include "scheduler/policies/piggyback.h"
#include "scheduler/step_draft.h"

namespace tandem {
namespace {

using omniserve::BestEffortPrompts;
using omniserve::BestEffortTime;
using omniserve::kNoLimit;
using omniserve::Leave;
using omniserve::MadeRoom;
using omniserve::Prompts;
using omniserve::Setting;
using omniserve::StepTime;

// Where LS requests come, one place in so many is not for best effort: they would have to wait for
// a sequence to end, or one would have to be computed anew for them.
constexpr int32_t kPlacesForLs = 16;

// An offloaded sequence comes back when time has been left over for so many steps.
constexpr int64_t kOnloadAfterSteps = 16;

void remember_limit(const SystemView& view, const StepTime& time, OmniServePolicy::Memory& memory) {
  if (time.pace < kNoLimit && time.pace_is_target) {
    memory.limit = time.pace;
    memory.limited = view.now;
  }
}

// What the step passes over.
void remember_passed_over(const Setting& setting, const StepDraft& draft,
                          const BestEffortPrompts& prompts, OmniServePolicy::Memory& memory) {
  const SystemView& view = setting.view;
  Patience& patience = memory.patience;
  patience.begin_step(view.step);
  for (size_t i = 0; i < view.running.size(); ++i) {
    if (draft.planner().may_decode(i, ServiceClass::kBestEffort)) {
      patience.pass_over_decode(view.running[i].id);
    }
  }
  if (setting.claims.work.prompts > 0 && !prompts.any_began) {
    patience.pass_over_prompts();
  }
  patience.end_step();
  memory.head = prompts.any_began ? OverdueHead{} : setting.claims.of_head;
}

// Prompts that fill the accelerator gain nothing from longer steps, but decodes of both tiers wait
// for them, the host's once a layer.
int32_t best_effort_step_tokens(const Setting& setting, const StepTime& time) {
  const int32_t most = max_step_tokens(setting, time);
  return setting.options.published_best_effort ? most
                                               : std::min(most, setting.options.token_budget);
}

struct DoneForBestEffort {
  BestEffortPrompts prompts;
  bool roomy = false;  // there was time for a decode more
};

// An overdue prompt goes before decodes: its tile is to be within the time of the step.
DoneForBestEffort serve_best_effort(const Setting& setting, StepDraft& draft, const Leave& leave,
                                    const Patience& patience) {
  DoneForBestEffort done;
  const auto decode = [&] {
    const bool short_of_time = decode_best_effort(setting, draft, leave, patience);
    done.roomy = !short_of_time && has_time_to_bring_back(setting, draft, leave.time);
  };
  if (!setting.options.published_best_effort && !setting.claims.prompt_is_overdue) {
    decode();
    done.prompts = compute_best_effort(setting, draft, leave);
  } else {
    done.prompts = compute_best_effort(setting, draft, leave);
    decode();
  }
  return done;
}

constexpr std::array<const PolicyOption*, 6> kOmniserveOptions = {
    &kPiggybackTokenBudget, &kOffloadBelow,   &kOnloadAbove,
    &kPatienceSteps,        &kHostLimitSteps, &kPublishedBestEffort};

Result<PolicyParts> make(const PolicyOptions& options, const Beliefs& beliefs) {
  const PiggybackOptions shared = piggyback_options(options);
  auto policy = std::make_unique<OmniServePolicy>(
      OmniServeOptions{.token_budget = shared.token_budget,
                       .offload_below = shared.offload_below,
                       .onload_above = shared.onload_above,
                       .patience_steps = options[kPatienceSteps],
                       .host_limit_steps = options[kHostLimitSteps],
                       .published_best_effort = options[kPublishedBestEffort] == 1},
      *beliefs.step_times, beliefs.host_times);
  PolicyParts parts;
  parts.make_binder = [&policy = *policy] { return policy.make_binder(); };
  parts.admission = policy->make_admission();
  parts.step = std::move(policy);
  return parts;
}

}  // namespace

constinit const PolicyOption kPatienceSteps{
    .name = "patience-steps",
    .unit = "steps",
    .default_value = 64,
    .min = 1,
    .max = std::numeric_limits<int32_t>::max(),
    .help = "steps for which best effort may be passed over"};
constinit const PolicyOption kHostLimitSteps{
    .name = "host-limit-steps",
    .unit = "steps",
    .default_value = 32,
    .min = 0,
    .max = std::numeric_limits<int32_t>::max(),
    .help =
        "best effort stops moving to the host after so many steps in a row in which the host's "
        "attention takes longer than the step; 0: never",
    .in_earlier_records = 0};

constinit const PolicyOption kPublishedBestEffort{
    .name = "published-best-effort",
    .unit = "",
    .default_value = 0,
    .min = 0,
    .max = 1,
    .help =
        "1: best effort as OmniServe published it, prompts before decodes, in chunks as large as "
        "targets allow; 0: decodes first, prompts while the step is within its token budget",
    .in_earlier_records = 1};

constinit const PolicyDescriptor kOmniServe{
    .name = "omniserve",
    .summary = "as piggyback, and keeps targets by predicting step times; needs a profile",
    .traits = {.needs_step_times = true, .admits = true, .tiers = PolicyTiers::kBoth},
    .options = kOmniserveOptions,
    .make = make};

OmniServePolicy::OmniServePolicy(const OmniServeOptions& options,
                                 const latency::StepTimeModel& step_times,
                                 const latency::HostTimes* host_times)
    : options_(options),
      step_times_(step_times),
      host_times_(host_times),
      memory_{.patience = Patience(options.patience_steps),
              .host_limit = HostLimit(options.host_limit_steps),
              .head = {}} {
  CHECK(options.token_budget > 0 && options.offload_below >= 0 &&
            options.offload_below <= options.onload_above && options.onload_above <= 100,
        "a token budget of {}, offload below {} %, onload above {} %", options.token_budget,
        options.offload_below, options.onload_above);
}

// Beside a step with the residents of the last one.
bool OmniServePolicy::host_limits(const SystemView& view) {
  return host_times_ != nullptr &&
         memory_.host_limit.limits(hops_of_a_step(view, *host_times_, step_times_, forecast_.shape),
                                   view.step);
}

StepPlan OmniServePolicy::plan(const SystemView& view) {
  StepDraft draft(view);
  ClassedPlanner& planner = draft.planner();
  const HostWaits host_waits(view, step_times_, memory_.host_waits);
  const bool host_limits = this->host_limits(view);
  const BestEffortClaims claims = best_effort_claims(view, planner, memory_.patience);
  const Setting setting{.view = view,
                        .options = options_,
                        .model = step_times_,
                        .claims = claims,
                        .visitors = visitor_rows(view),
                        .ready = ready_results(view)};

  omniserve::Decodes decodes = decode_latency_sensitive(setting, draft);
  const StepTime time = step_time(setting, draft.shape(), decodes.decodes);
  remember_limit(view, time, memory_);
  host_waits.bring_back(planner);
  Prompts prompts = compute_latency_sensitive(setting, draft, time, std::move(decodes));
  const MadeRoom ahead = make_room_ahead(setting, draft, time, prompts);
  prompts.line.keep(planner, ahead.room);

  const bool is_limited = memory_.is_limited(view.now);
  const BestEffortTime left =
      best_effort_time(setting, time,
                       {.shape = draft.shape(),
                        .decodes = prompts.decodes,
                        .first_tokens = prompts.first_tokens,
                        .lost = ahead.lost,
                        .remembered = is_limited ? memory_.limit : kNoLimit});
  const Leave leave{.time = left,
                    .step_tokens = best_effort_step_tokens(setting, time),
                    .kept_places = is_limited ? places_of(view) / kPlacesForLs : 0,
                    .decodes = prompts.decodes,
                    .host_limits = host_limits,
                    .line = prompts.line};
  if (!host_limits) {
    make_room_for_best_effort(planner, view, options_.offload_below);
  }
  const DoneForBestEffort done = serve_best_effort(setting, draft, leave, memory_.patience);
  if (memory_.roomy.steps(done.roomy, view.step) >= kOnloadAfterSteps) {
    bring_back_best_effort(setting, draft, prompts.line);
  }
  remember_passed_over(setting, draft, done.prompts, memory_);
  if (!host_limits) {
    planner.write_through_best_effort(planner.share_of_blocks(options_.offload_below));
  }

  // Visitors too leave waiting prompts their time.
  forecast_ = {
      .step = view.step,
      .shape = draft.shape(),
      .limit = view.offloaded.empty() ? time.limit : std::min(time.limit, left.first_tokens)};
  return host_waits.finish(planner.finish(), draft.shape(), setting.ready);
}

}  // namespace tandem
