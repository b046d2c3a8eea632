// The profile of a model on this machine: where it is looked for, how it is measured, and what
// becomes of it. A profile is wanted where the policy needs one or --profile names one; the first
// start without one measures a short one and keeps it.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "latency/host_profiler.h"
#include "latency/profile.h"
#include "latency/profiler.h"
#include "node/step_bell.h"

namespace tandem {

struct NodeOptions;
struct ModelOnDevice;

struct ProfileOptions {
  std::filesystem::path file;          // empty: one in the cache
  std::filesystem::path cache_folder;  // empty: nothing is kept
  latency::TimeModel model = latency::TimeModel::kModular;
  std::string text;  // instead of a file: a record brings its own
};

bool wants_profile(const NodeOptions& options);

latency::ProfileIdentity identity_of(const NodeOptions& options, const ModelOnDevice& parts);

// The named file, or one in the cache that is named by the identity; empty: neither is there.
std::filesystem::path profile_path(const ProfileOptions& options,
                                   const latency::ProfileIdentity& identity);

// The named profile, or the one in the cache; nullopt: there is no such file. Errors: it cannot be
// read, is of something else, or covers too little.
Result<std::optional<latency::Profile>> fitting_profile(const NodeOptions& options,
                                                        const ModelOnDevice& parts);

// Reads the profile if there is one. A named file must be readable and fit; one in the cache that
// is not or does not is measured again. Needs no weights.
Status find_profile(const NodeOptions& options, ModelOnDevice& parts);

// What the engine needs to know of a profile: its model, ready to be corrected.
Status use_profile(const NodeOptions& options, ModelOnDevice& parts);

// Measures in the loaded model, whose completion listener rings `bell`.
struct MeasuredProfile {
  latency::Measured steps;
  std::optional<latency::MeasuredHost> host;  // two tiers only
};
Result<MeasuredProfile> measure_profile(const NodeOptions& options, ModelOnDevice& parts,
                                        StepBell& bell, const Clock& clock,
                                        const latency::ProfilerOptions& profiler,
                                        const latency::ProfileProgress& progress);
latency::Profile profile_of(MeasuredProfile measured, latency::ProfileIdentity identity);

// Where a profile is wanted and none was found: measures a short one, keeps it and uses it.
Status make_profile(const NodeOptions& options, ModelOnDevice& parts, StepBell& bell,
                    const Clock& clock, const latency::ProfileProgress& progress);

}  // namespace tandem
