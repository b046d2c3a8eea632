// The profile of a model on this machine: where it is looked for, how it is measured, and what
// becomes of it. A profile is wanted if the policy needs one or --profile names one; the first
// start without one measures a short one and keeps it.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bell.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/tuned_choice.h"
#include "latency/corrected_model.h"
#include "latency/host_profiler.h"
#include "latency/profile.h"
#include "latency/profiler.h"
#include "node/loaded_model.h"
#include "node/node_options.h"
#include "node/planned_model.h"

namespace tandem {

// Names everything about the shape that a step's time depends on.
std::string shape_digest(const model::ModelConfig& shape);

bool wants_profile(const NodeOptions& options);

latency::ProfileIdentity identity_of(const NodeOptions& options, const OpenedModel& model);

// The named file, or one in the cache that is named by the identity; empty: neither is there.
std::filesystem::path profile_path(const ProfileOptions& options,
                                   const latency::ProfileIdentity& identity);

// The named profile, or the one in the cache, of any build of Tandem; nullopt: there is no such
// file. Errors: it cannot be read, is of something else, or covers too little.
Result<std::optional<latency::Profile>> fitting_profile(const NodeOptions& options,
                                                        const OpenedModel& model);

// The profile if one is wanted and there. A named file must be readable and fit; one in the cache
// that is not, does not, or is of another build of Tandem, is measured again.
Result<std::optional<latency::Profile>> find_profile(const NodeOptions& options,
                                                     const OpenedModel& model);

// The profile's model of step times, ready to be corrected.
Result<std::unique_ptr<latency::CorrectedModel>> step_times_of(const NodeOptions& options,
                                                               const latency::Profile& profile);

// Measures in the loaded model, whose completion listener rings `bell`.
struct MeasuredProfile {
  latency::Measured steps;
  std::optional<latency::MeasuredHost> host;  // two tiers only
  std::vector<TunedChoice> choices;           // the device's choices; empty: it makes none
};
Result<MeasuredProfile> measure_profile(const NodeOptions& options, const PlannedModel& model,
                                        LoadedModel& loaded, Bell& bell, const Clock& clock,
                                        const latency::ProfilerOptions& profiler,
                                        const latency::ProfileProgress& progress);
latency::Profile profile_of(MeasuredProfile measured, latency::ProfileIdentity identity);

// Measures a short profile, and keeps it where the next start finds it.
Result<latency::Profile> make_profile(const NodeOptions& options, const PlannedModel& model,
                                      LoadedModel& loaded, Bell& bell, const Clock& clock,
                                      const latency::ProfileProgress& progress);

}  // namespace tandem
