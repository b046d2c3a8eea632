#include "node/scheduled_model.h"

#include <utility>

#include "base/log.h"
#include "base/units.h"
#include "node/engine_meter.h"
#include "node/policy_choice.h"
#include "node/time_profile.h"
#include "scheduler/policies/registry.h"

namespace tandem {
namespace {

Status settle_step_budget(NodeOptions& options, const PlannedModel& model, LoadedModel& loaded,
                          Bell& bell, const Clock& clock) {
  EngineMeter meter({.vocabulary = model.folder.config.vocabulary,
                     .max_model_len = model.plan.max_model_len,
                     .max_running = options.max_num_seqs},
                    *loaded.executor, bell, clock);
  ASSIGN_OR_RETURN(const SmoothBudget budget, measure_step_budget(meter));
  const PolicyOption& option = *policy_traits(options.policy).measured_budget;
  options.policy_options[option] = budget.tokens;
  log::info(
      "policy: steps of up to {} tokens, which take {}, so that decodes stay smooth (limit {}; one "
      "decode alone takes {}); --{} sets another number",
      budget.tokens, format_duration(budget.step), format_duration(budget.limit),
      format_duration(budget.decode), option.name);
  return {};
}

}  // namespace

Result<ScheduledModel> schedule_model(const NodeOptions& options,
                                      std::optional<latency::Profile> profile) {
  ScheduledModel scheduled;
  Beliefs beliefs;
  if (profile.has_value()) {
    scheduled.profile = std::make_unique<const latency::Profile>(*std::move(profile));
    ASSIGN_OR_RETURN(scheduled.step_times, step_times_of(options, *scheduled.profile));
    beliefs.step_times = scheduled.step_times.get();
    if (scheduled.profile->host.has_value()) {
      scheduled.host_times = std::make_unique<latency::CorrectedHost>(*scheduled.profile->host);
      beliefs.host_times = &scheduled.host_times->times();
    }
  }
  ASSIGN_OR_RETURN(scheduled.policy, make_policy(options.policy, options.policy_options, beliefs));
  return scheduled;
}

Result<ScheduledModel> complete_model(NodeOptions& options, const PlannedModel& model,
                                      LoadedModel& loaded, Bell& bell, const Clock& clock,
                                      const latency::ProfileProgress& progress) {
  std::optional<latency::Profile> profile = model.profile;
  device::Tuning* const tuning = model.device.device().tuning();
  if (profile.has_value() && tuning != nullptr) {
    tuning->use(profile->choices);
  }
  if (wants_profile(options) && !profile.has_value()) {
    ASSIGN_OR_RETURN(profile, make_profile(options, model, loaded, bell, clock, progress));
  }
  if (wants_step_budget(options)) {
    RETURN_IF_ERROR(settle_step_budget(options, model, loaded, bell, clock));
  }
  ASSIGN_OR_RETURN(ScheduledModel scheduled, schedule_model(options, std::move(profile)));
  if (loaded.binder != nullptr) {
    loaded.binder->use(scheduled.policy.make_binder());
  }
  return scheduled;
}

EngineConfig engine_config(const NodeOptions& options, const PlannedModel& model,
                           const latency::Profile* profile) {
  EngineConfig config;
  config.max_running = running_sequences(options);
  if (config.max_running < options.max_num_seqs) {
    log::warn(
        "--max-num-seqs {} is more than the steps of --max-num-batched-tokens {} have rows for: {} "
        "sequences run at a time; raise --max-num-batched-tokens or lower --max-num-seqs",
        options.max_num_seqs, options.max_num_batched_tokens, config.max_running);
  }
  config.max_model_len = model.plan.max_model_len;
  config.prefix_caching = options.prefix_caching;
  config.eos_token_ids = model.folder.eos_token_ids;
  config.seed = options.seed;
  if (profile != nullptr && profile->host.has_value()) {
    const latency::AlphaBeta& link = profile->host->from_host;
    const auto block_bytes =
        static_cast<double>(kv_layout_for(model.folder.config, model.plan.executor).block_bytes());
    config.from_host = {.alpha_nanos = link.alpha_nanos,
                        .beta_nanos = link.beta_nanos * block_bytes};
  }
  return config;
}

}  // namespace tandem
