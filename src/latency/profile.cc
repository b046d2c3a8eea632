#include "latency/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace tandem::latency {
namespace {

template <class Model, class Costs>
Result<std::unique_ptr<const StepTimeModel>> made(const Costs& costs) {
  ASSIGN_OR_RETURN(Model model, Model::create(costs));
  return std::unique_ptr<const StepTimeModel>(std::make_unique<Model>(std::move(model)));
}

}  // namespace

std::string_view time_model_name(TimeModel model) {
  constexpr std::array<std::string_view, 3> kNames = {"modular", "regression", "table"};
  return kNames.at(static_cast<size_t>(model));
}

Result<std::unique_ptr<const StepTimeModel>> make_time_model(const Profile& profile,
                                                             TimeModel which) {
  switch (which) {
    case TimeModel::kRegression:
      return made<RegressionModel>(profile.regression);
    case TimeModel::kTable:
      return made<TableModel>(profile.table);
    case TimeModel::kModular:
      break;
  }
  return made<ModularModel>(profile.modular);
}

Status check_fits(const Profile& profile, const ProfileIdentity& identity) {
  const ProfileIdentity& own = profile.identity;
  const auto differs = [](std::string_view what, const auto& there, const auto& here) -> Status {
    if (there == here) {
      return {};
    }
    return invalid_argument(
        fmt::format("it was measured with {} '{}', but this is '{}'; measure again with "
                    "tandem profile",
                    what, there, here),
        "profile");
  };
  if (own.model_digest != identity.model_digest) {
    return invalid_argument(
        fmt::format("it was measured with model '{}' (shape {}), but this is '{}' (shape {}); "
                    "measure again with tandem profile",
                    own.model, own.model_digest, identity.model, identity.model_digest),
        "profile");
  }
  RETURN_IF_ERROR(differs("CPU", own.cpu, identity.cpu));
  RETURN_IF_ERROR(differs("instruction set", own.isa, identity.isa));
  RETURN_IF_ERROR(differs("threads", own.threads, identity.threads));
  RETURN_IF_ERROR(differs("device", own.device, identity.device));
  RETURN_IF_ERROR(differs("element type", own.dtype, identity.dtype));
  return differs("KV element type", own.kv_dtype, identity.kv_dtype);
}

Status check_is_of_build(const Profile& profile, const ProfileIdentity& identity) {
  if (profile.identity.build == identity.build) {
    return {};
  }
  return invalid_argument(
      "it was measured with another build of Tandem, whose kernels may be faster or slower",
      "profile");
}

Status check_covers(const Profile& profile, const StepLimits& limits) {
  constexpr int32_t kShare = 4;
  const auto covers = [](int32_t measured, int32_t wanted) { return measured >= wanted / kShare; };
  const bool rows = covers(std::max(profile.limits.rows, profile.most_rows), limits.rows);
  const bool sequences =
      profile.limits.sequences == 0 || covers(profile.limits.sequences, limits.sequences);
  if (rows && sequences) {
    return {};
  }
  return invalid_argument(
      fmt::format(
          "it was measured for steps of up to {} {}, and this server's may have {}; "
          "measure again with tandem profile and the flags of the server",
          rows ? profile.limits.sequences : std::max(profile.limits.rows, profile.most_rows),
          rows ? "sequences" : "rows", rows ? limits.sequences : limits.rows),
      "profile");
}

Status check_has_host(const Profile& profile) {
  if (profile.host.has_value()) {
    return {};
  }
  return invalid_argument(
      "it was measured on one tier, and the policy plans by the host's times; measure again "
      "with tandem profile and the flags of the second tier",
      "profile");
}

Status check_prices_mixed_steps(TimeModel model) {
  if (model != TimeModel::kTable) {
    return {};
  }
  return invalid_argument(
      "the table model of time adds the times of prompts and decodes, which is wrong for steps "
      "that hold both, and the policy plans such steps; use --time-model modular or regression",
      "time-model");
}

std::string text_digest(std::string_view text) {
  uint64_t hash = 1469598103934665603ULL;  // FNV-1a
  for (const char c : text) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211ULL;
  }
  return fmt::format("{:016x}", hash);
}

std::string identity_digest(const ProfileIdentity& identity) {
  return text_digest(fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}", identity.model_digest,
                                 identity.device, identity.cpu, identity.isa, identity.threads,
                                 identity.dtype, identity.kv_dtype));
}

}  // namespace tandem::latency
