// A loaded model with the policy that plans its steps and the step times that the policy believes:
// all that an engine needs. Threads: one owner at a time.
#pragma once

#include <memory>
#include <optional>

#include "base/bell.h"
#include "base/clock.h"
#include "base/result.h"
#include "engine/engine.h"
#include "latency/corrected_host.h"
#include "latency/corrected_model.h"
#include "latency/profile.h"
#include "latency/profiler.h"
#include "node/loaded_model.h"
#include "node/node_options.h"
#include "node/planned_model.h"
#include "scheduler/policy.h"

namespace tandem {

struct ScheduledModel {
  // Null, both: no step times are wanted.
  std::unique_ptr<const latency::Profile> profile;
  std::unique_ptr<latency::CorrectedModel> step_times;
  std::unique_ptr<latency::CorrectedHost> host_times;  // null: the profile says nothing of a host
  PolicyParts policy;
};

// The policy that `options` name, with the step times of `profile`. Errors: its options are wrong,
// or it cannot plan by these times.
Result<ScheduledModel> schedule_model(const NodeOptions& options,
                                      std::optional<latency::Profile> profile);

// Measures the step times and the step budget that are wanted and not known, and makes the policy.
// The executor's completion listener must ring `bell` meanwhile. A step budget that was measured is
// put into `options`.
Result<ScheduledModel> complete_model(NodeOptions& options, const PlannedModel& model,
                                      LoadedModel& loaded, Bell& bell, const Clock& clock,
                                      const latency::ProfileProgress& progress);

// `profile` may be null.
EngineConfig engine_config(const NodeOptions& options, const PlannedModel& model,
                           const latency::Profile* profile);

}  // namespace tandem
