#include "node/time_profile.h"

#include <fmt/format.h>

#include <utility>

#include "base/date.h"
#include "base/log.h"
#include "base/units.h"
#include "device/cpu/machine.h"
#include "exec/code_digest.h"
#include "node/device_tuning.h"
#include "node/engine_meter.h"
#include "node/tier_meter.h"
#include "scheduler/policies/registry.h"

namespace tandem {
namespace {

using latency::Profile;
using latency::ProfileIdentity;

constexpr int32_t kHostPart = 5;  // of the time for a profile, the share of a second tier

// Of the weights of stages 0 .. layers - 1: stage 0 has no post-attention part.
double first_stage_share(const model::ModelConfig& shape) {
  const double attention = static_cast<double>(shape.heads) * shape.head_dim;
  const double pre =
      shape.hidden * (attention + 2.0 * static_cast<double>(shape.kv_heads) * shape.head_dim);
  const double post =
      shape.hidden * attention + 3.0 * static_cast<double>(shape.hidden) * shape.intermediate;
  return pre / (shape.layers * pre + (shape.layers - 1) * post);
}

// Files mix the same kinds in many ways, which read different numbers of bytes.
std::string weights_identity(const model::WeightFormats& formats) {
  std::string kinds;
  for (const auto& [tensor, quantization] : formats.tensors) {
    fmt::format_to(std::back_inserter(kinds), "{} {}\n", tensor, quantization_name(quantization));
  }
  return kinds.empty() ? formats.name()
                       : fmt::format("{}, mixture {}", formats.name(), latency::text_digest(kinds));
}

void print_accuracy(const Profile& profile, const std::filesystem::path& from) {
  const latency::Accuracy& own = profile.accuracy.modular;
  log::info(
      "step times: profile of {}{}; its predictions of {} held-out batches are {:.1f} % accurate "
      "in "
      "the mean, nine of ten at least {:.1f} % (a second run of the same batch: {:.1f} %)",
      profile.date, from.empty() ? "" : fmt::format(" in {}", from.string()), own.batches,
      own.mean * 100, own.p90 * 100, profile.accuracy.repeatability.mean * 100);
  constexpr int32_t kFar = 8;
  if (profile.most_rows < profile.limits.rows / kFar) {
    log::warn(
        "step times: steps of up to {} rows were measured and {} are allowed; the times of larger "
        "ones are extrapolated. tandem profile --time 300s measures more, and a smaller "
        "--max-num-batched-tokens needs less",
        profile.most_rows, profile.limits.rows);
  }
}

}  // namespace

std::string shape_digest(const model::ModelConfig& shape) {
  std::string text = fmt::format(
      "layers {} hidden {} intermediate {} heads {}/{} of {} vocabulary {} bias {} norm {}",
      shape.layers, shape.hidden, shape.intermediate, shape.heads, shape.kv_heads, shape.head_dim,
      shape.vocabulary, static_cast<int>(shape.qkv_bias), static_cast<int>(shape.qk_norm));
  for (const int32_t window : shape.windows) {
    fmt::format_to(std::back_inserter(text), " {}", window);
  }
  return latency::text_digest(text);
}

bool wants_profile(const NodeOptions& options) {
  return policy_traits(options.policy).needs_step_times || !options.profile.file.empty() ||
         !options.profile.text.empty();
}

std::filesystem::path profile_path(const ProfileOptions& options, const ProfileIdentity& identity) {
  if (!options.file.empty()) {
    return options.file;
  }
  if (options.cache_folder.empty()) {
    return {};
  }
  return options.cache_folder /
         fmt::format("{}-{}.json", identity.model, latency::identity_digest(identity));
}

ProfileIdentity identity_of(const NodeOptions& options, const OpenedModel& model) {
  const device::AcceleratorCaps& caps = model.device.caps();
  return {.model = std::filesystem::weakly_canonical(options.model).filename().string(),
          .model_digest = shape_digest(model.folder.config),
          .device = caps.identity,
          .cpu = device::cpu_name(),
          .isa = caps.kernels,
          .threads = caps.threads,
          .dtype = weights_identity(model.format),
          .kv_dtype = std::string(element_name(model.kv_dtype)),
          .build = kCodeDigest};
}

Result<std::optional<Profile>> fitting_profile(const NodeOptions& options,
                                               const OpenedModel& model) {
  const ProfileIdentity identity = identity_of(options, model);
  const std::filesystem::path path = profile_path(options.profile, identity);
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error)) {
    return std::optional<Profile>();
  }
  ASSIGN_OR_RETURN(Profile profile, latency::read_profile(path));
  if (const Status fits = check_fits(profile, identity); !fits.ok()) {
    return invalid_argument(
        fmt::format("the profile '{}' does not fit: {}", path.string(), fits.error().message),
        "profile");
  }
  const latency::StepLimits limits{.rows = options.max_num_batched_tokens,
                                   .sequences = options.max_num_seqs};
  if (const Status covers = check_covers(profile, limits); !covers.ok()) {
    return invalid_argument(
        fmt::format("the profile '{}' says too little: {}", path.string(), covers.error().message),
        "profile");
  }
  return std::optional<Profile>(std::move(profile));
}

namespace {

// Nothing, or why the profile of another build is not used: one in the cache is measured anew.
Status check_build(const ProfileOptions& options, const Profile& profile,
                   const ProfileIdentity& identity) {
  const Status same = check_is_of_build(profile, identity);
  if (same.ok()) {
    return {};
  }
  const std::string message = fmt::format(
      "the profile '{}': {}", profile_path(options, identity).string(), same.error().message);
  if (options.file.empty()) {
    return invalid_argument(message, "profile");
  }
  log::warn("{}; tandem profile measures again", message);
  return {};
}

// The profile if there is one and it has what the policy needs.
Result<std::optional<Profile>> sufficient_profile(const NodeOptions& options,
                                                  const OpenedModel& model) {
  ASSIGN_OR_RETURN(std::optional<Profile> profile, fitting_profile(options, model));
  if (profile.has_value()) {
    RETURN_IF_ERROR(check_build(options.profile, *profile, identity_of(options, model)));
  }
  const bool needs_host =
      policy_traits(options.policy).needs_host_times && options.accelerator.has_value();
  if (profile.has_value() && needs_host) {
    if (const Status has = check_has_host(*profile); !has.ok()) {
      return invalid_argument(
          fmt::format("the profile '{}' says too little: {}",
                      profile_path(options.profile, identity_of(options, model)).string(),
                      has.error().message),
          "profile");
    }
  }
  return profile;
}

}  // namespace

Result<std::optional<Profile>> find_profile(const NodeOptions& options, const OpenedModel& model) {
  std::optional<Profile> found;
  if (!wants_profile(options)) {
    return found;
  }
  if (!options.profile.text.empty()) {
    ASSIGN_OR_RETURN(found, latency::parse_profile(options.profile.text));
  } else {
    Result<std::optional<Profile>> fitting = sufficient_profile(options, model);
    if (!fitting.ok()) {
      if (!options.profile.file.empty()) {
        return fitting.error();
      }
      log::warn("{}; it is measured anew", fitting.error().message);
      return found;
    }
    found = *std::move(fitting);
    if (!found.has_value()) {
      return found;
    }
    print_accuracy(*found, profile_path(options.profile, identity_of(options, model)));
  }
  RETURN_IF_ERROR(
      step_times_of(options, *found));  // what is wrong with them is said before loading
  return found;
}

Result<std::unique_ptr<latency::CorrectedModel>> step_times_of(const NodeOptions& options,
                                                               const Profile& profile) {
  if (policy_traits(options.policy).needs_step_times) {
    RETURN_IF_ERROR(latency::check_prices_mixed_steps(options.profile.model));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<const latency::StepTimeModel> model,
                   make_time_model(profile, options.profile.model));
  return std::make_unique<latency::CorrectedModel>(std::move(model),
                                                   1 + options.profile.error_percent / 100.0);
}

Result<MeasuredProfile> measure_profile(const NodeOptions& options, const PlannedModel& model,
                                        LoadedModel& loaded, Bell& bell, const Clock& clock,
                                        const latency::ProfilerOptions& profiler,
                                        const latency::ProfileProgress& progress) {
  const model::ModelConfig& shape = model.folder.config;
  const bool host_tier = model.plan.host.kv_blocks > 0;
  latency::ProfilerOptions steps = profiler;
  const Nanos host_time = host_tier ? profiler.time / kHostPart : Nanos{0};
  steps.time -= host_time;
  MeasuredProfile measured;
  EngineMeter meter({.vocabulary = shape.vocabulary,
                     .max_model_len = model.plan.max_model_len,
                     .max_running = options.max_num_seqs},
                    *loaded.executor, bell, clock);
  if (device::Tuning* tuning = model.device.device().tuning()) {
    ASSIGN_OR_RETURN(measured.choices, tune_device(*tuning, meter, profiler.time, progress));
  }
  ASSIGN_OR_RETURN(
      measured.steps,
      latency::measure_steps(
          meter, {.layers = shape.layers, .first_stage_share = first_stage_share(shape)}, steps,
          clock, progress));
  if (host_tier) {
    TierMeter tiers({.layers = shape.layers,
                     .max_model_len = model.plan.max_model_len,
                     .group_stages = options.group_stages},
                    *loaded.executor, bell, clock);
    ASSIGN_OR_RETURN(measured.host, latency::measure_host(tiers, measured.steps.modular,
                                                          {.time = host_time}, clock, progress));
    measured.steps.modular.per_visit = measured.host->per_visit;
  }
  return measured;
}

Profile profile_of(MeasuredProfile made, ProfileIdentity identity) {
  latency::Measured& measured = made.steps;
  Profile profile;
  profile.identity = std::move(identity);
  profile.date = utc_date_text();
  profile.batches = measured.batches;
  profile.most_rows = measured.most_rows;
  profile.limits = {.rows = measured.limits.rows,
                    .sequences = measured.limits.sequences,
                    .context = measured.limits.context};
  profile.modular = std::move(measured.modular);
  profile.regression = measured.regression;
  profile.table = std::move(measured.table);
  profile.accuracy = {.modular = measured.modular_accuracy,
                      .regression = measured.regression_accuracy,
                      .table = measured.table_accuracy,
                      .repeatability = measured.repeatability};
  if (made.host.has_value()) {
    profile.host = made.host->times;
  }
  profile.choices = std::move(made.choices);
  return profile;
}

Result<Profile> make_profile(const NodeOptions& options, const PlannedModel& model,
                             LoadedModel& loaded, Bell& bell, const Clock& clock,
                             const latency::ProfileProgress& progress) {
  ASSIGN_OR_RETURN(MeasuredProfile measured, measure_profile(options, model, loaded, bell, clock,
                                                             latency::short_profile(), progress));
  const ProfileIdentity identity = identity_of(options, model);
  Profile profile = profile_of(std::move(measured), identity);
  std::filesystem::path path = profile_path(options.profile, identity);
  if (!path.empty()) {
    if (const Status written = write_profile(profile, path); !written.ok()) {
      if (!options.profile.file.empty()) {
        return written.error();
      }
      log::warn("{}; the next start measures again", written.error().message);
      path.clear();
    }
  }
  print_accuracy(profile, path);
  return profile;
}

}  // namespace tandem
