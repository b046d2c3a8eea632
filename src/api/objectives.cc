#include "api/objectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "api/key_file.h"

namespace tandem::api {

namespace {

constexpr std::string_view kHeader = "x-llm-d-inference-objective";
constexpr size_t kMostObjectives = 1000;

Result<Objective> parse_objective(std::string_view text) {
  ASSIGN_OR_RETURN(NamedGrant named, parse_named_grant(text, GrantOf::kObjective));
  if (named.name.empty()) {
    return invalid_argument("an objective begins with its name");
  }
  return Objective{.name = std::move(named.name), .gives = named.grant, .text = std::string(text)};
}

}  // namespace

Result<std::vector<Objective>> parse_objectives(std::span<const std::string> flags) {
  std::vector<Objective> objectives;
  const auto broken = [](std::string_view problem) {
    return invalid_argument(std::string(problem), "objective");
  };
  if (flags.size() > kMostObjectives) {
    return broken(fmt::format("{} are more than {}", flags.size(), kMostObjectives));
  }
  for (const std::string& flag : flags) {
    Result<Objective> objective = parse_objective(flag);
    if (!objective.ok()) {
      return broken(objective.error().message);
    }
    if (std::ranges::find(objectives, objective->name, &Objective::name) != objectives.end()) {
      return broken(fmt::format("'{}' is there twice; keep one", objective->name));
    }
    objectives.push_back(std::move(objective).value());
  }
  return objectives;
}

Result<ServiceGrant> grant_for(const HttpRequest& request, ServiceGrant of_key,
                               std::span<const Objective> objectives) {
  std::optional<std::string_view> name;
  for (const auto& [header, value] : request.headers) {
    if (header != kHeader) {
      continue;
    }
    if (name && *name != value) {
      return invalid_argument(
          fmt::format("the header '{}' is there twice with other names; send it once", kHeader),
          std::string(kHeader));
    }
    name = value;
  }
  const auto found =
      name ? std::ranges::find(objectives, *name, &Objective::name) : objectives.end();
  if (found == objectives.end()) {
    return of_key;
  }
  const ServiceGrant& gives = found->gives;
  of_key.service_class = gives.service_class ? gives.service_class : of_key.service_class;
  of_key.level = gives.level ? gives.level : of_key.level;
  of_key.slo.ttft = gives.slo.ttft ? gives.slo.ttft : of_key.slo.ttft;
  of_key.slo.tpot = gives.slo.tpot ? gives.slo.tpot : of_key.slo.tpot;
  return of_key;
}

}  // namespace tandem::api
