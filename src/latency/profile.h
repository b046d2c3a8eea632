// What was measured of a model on a machine, and for which: the content of a profile file. The file
// is JSON; what it says is checked like everything else that comes from outside.
//
// Plain data and functions; any thread.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/tuned_choice.h"
#include "latency/accuracy.h"
#include "latency/host_times.h"
#include "latency/modular_model.h"
#include "latency/regression_model.h"
#include "latency/table_model.h"

namespace tandem::latency {

// Steps of two servers take the same time only where all of this is the same.
struct ProfileIdentity {
  std::string model;         // the folder's name, for people; not compared
  std::string model_digest;  // of the model's shape
  std::string device;  // "cpu (amx, 2 threads)", or what an emulated accelerator says of itself
  std::string cpu;     // as the system calls it
  std::string isa;
  int32_t threads = 0;
  std::string dtype;
  std::string kv_dtype;
  std::string build;  // digest of the code that steps run; compared by check_is_of_build
};

struct ProfileAccuracy {
  Accuracy modular;
  Accuracy regression;
  Accuracy table;
  Accuracy repeatability;
};

// How large a server's steps may be.
struct StepLimits {
  int32_t rows = 0;
  int32_t sequences = 0;
  int32_t context = 0;  // of a sequence
};

struct Profile {
  ProfileIdentity identity;
  std::string date;  // "2026-11-21T10:00:00Z"
  int64_t batches = 0;
  int32_t most_rows = 0;  // of a measured step
  StepLimits limits;      // of the server that was measured; those not named in the file are 0
  ModularCosts modular;
  RegressionCosts regression;
  TableCosts table;
  ProfileAccuracy accuracy;
  std::optional<HostTimes> host;     // two tiers only
  std::vector<TunedChoice> choices;  // the device's choices while steps were measured
};

enum class TimeModel : uint8_t { kModular, kRegression, kTable };
std::string_view time_model_name(TimeModel model);  // "modular", "regression", "table"

// One of the profile's models.
Result<std::unique_ptr<const StepTimeModel>> make_time_model(const Profile& profile,
                                                             TimeModel which);

std::string profile_text(const Profile& profile);  // JSON
// Errors name the field, what it holds and what would do.
Result<Profile> parse_profile(std::string_view text);

// Whole or not at all: through a file beside it that is renamed. Makes the folder.
Status write_profile(const Profile& profile, const std::filesystem::path& path);
Result<Profile> read_profile(const std::filesystem::path& path);

// Nothing, or what differs and what to do: a profile of another machine is of no use.
Status check_fits(const Profile& profile, const ProfileIdentity& identity);

// Nothing, or the reason to measure again: another build may have faster kernels. A server corrects
// its step times while it runs, so it may use such a profile.
Status check_is_of_build(const Profile& profile, const ProfileIdentity& identity);

// Nothing, or what to do: the profile was measured for steps less than a quarter as large as those
// of a server with `limits`, so most of what it says would be extrapolated. A profile whose
// measuring ended early, though it was asked for as much, covers them.
Status check_covers(const Profile& profile, const StepLimits& limits);

// Nothing, or what to do: the profile is of one tier, so it has no times of a host.
Status check_has_host(const Profile& profile);

// Nothing, or why a policy whose steps hold prompts and decodes together cannot use the model.
Status check_prices_mixed_steps(TimeModel model);

// Sixteen hexadecimal digits that name a text. Not for anything that somebody might want to forge.
std::string text_digest(std::string_view text);
// The same of all that is compared of an identity, for names of files.
std::string identity_digest(const ProfileIdentity& identity);

}  // namespace tandem::latency
