#include "openai/service_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

namespace tandem::openai {

namespace {

constexpr std::array<std::string_view, 5> kServiceTiers = {"auto", "default", "flex", "priority",
                                                           "scale"};
constexpr std::array<std::string_view, 4> kSloFields = {"ttft_ms", "tpot_ms", "ttft", "tpot"};
constexpr std::array<std::string_view, 1> kTandemFields = {"explain"};

// What is not known would be ignored without a word, and these fields are promises.
Status check_names(const Json& object, std::string_view name,
                   std::span<const std::string_view> known) {
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(known, key) == known.end()) {
      const std::string shown = key.substr(0, 64);
      return invalid_argument(
          fmt::format("'{}' has no field '{}'; it has {}", name, shown, fmt::join(known, ", ")),
          fmt::format("{}.{}", name, shown));
    }
  }
  return {};
}

template <class T>
Result<T> about(const std::string& name, Result<T> result, std::string_view cure) {
  if (!result.ok()) {
    return invalid_argument(fmt::format("'{}': {}; {}", name, result.error().message, cure), name);
  }
  return result;
}

// "500ms" in `text_name` or 500 in `text_name`_ms. The name of the one that is there, or "".
Result<std::string> present_name(const FieldReader& fields, std::string_view text_name) {
  const std::string millis_name = fmt::format("{}_ms", text_name);
  const bool text = fields.find(text_name) != nullptr;
  if (text && fields.find(millis_name) != nullptr) {
    return invalid_argument(fmt::format("'{}' and '{}' say the same thing; send one of them",
                                        fields.full_name(text_name), fields.full_name(millis_name)),
                            fields.full_name(millis_name));
  }
  return text ? std::string(text_name) : fields.find(millis_name) != nullptr ? millis_name : "";
}

Result<Nanos> millis_of(const FieldReader& fields, const std::string& name,
                        std::string_view other) {
  const Json& value = *fields.find(name);
  if (!value.is_number()) {
    return fields.wrong(
        name, fmt::format("a number of milliseconds such as 500 (with units: '{}')", other), value);
  }
  return about(fields.full_name(name), target_of_millis(value.get<double>()),
               "leave it out for no target");
}

Status parse_ttft(const FieldReader& fields, ServiceClaim& claim) {
  ASSIGN_OR_RETURN(const std::string name, present_name(fields, "ttft"));
  if (name.empty()) {
    return {};
  }
  claim.ttft_name = fields.full_name(name);
  if (name == "ttft") {
    ASSIGN_OR_RETURN(const auto text, fields.string("ttft"));
    ASSIGN_OR_RETURN(claim.ttft, about(claim.ttft_name, parse_ttft_rule(text.value_or("")),
                                       "leave it out for no target"));
  } else {
    ASSIGN_OR_RETURN(const Nanos base, millis_of(fields, name, "slo.ttft"));
    claim.ttft = TtftRule{.base = base};
  }
  return {};
}

Status parse_tpot(const FieldReader& fields, ServiceClaim& claim) {
  ASSIGN_OR_RETURN(const std::string name, present_name(fields, "tpot"));
  if (name.empty()) {
    return {};
  }
  claim.tpot_name = fields.full_name(name);
  if (name == "tpot") {
    ASSIGN_OR_RETURN(const auto text, fields.string("tpot"));
    ASSIGN_OR_RETURN(claim.tpot, about(claim.tpot_name, parse_target(text.value_or("")),
                                       "leave it out for no target"));
  } else {
    ASSIGN_OR_RETURN(claim.tpot, millis_of(fields, name, "slo.tpot"));
  }
  return {};
}

}  // namespace

Result<ServiceClaim> parse_service_claim(const FieldReader& fields) {
  constexpr int64_t kMostLevel = std::numeric_limits<int32_t>::max();
  ServiceClaim claim;
  ASSIGN_OR_RETURN(const auto tier, fields.string("service_tier"));
  if (tier && std::ranges::find(kServiceTiers, *tier) == kServiceTiers.end()) {
    return invalid_argument(fmt::format("'service_tier' must be one of {}, not {}",
                                        fmt::join(kServiceTiers, ", "), describe(Json(*tier))),
                            "service_tier");
  }
  if (tier == "flex") {
    claim.service_class = ServiceClass::kBestEffort;
  } else if (tier == "priority") {
    claim.service_class = ServiceClass::kLatencySensitive;
  }
  ASSIGN_OR_RETURN(const auto priority, fields.integer("priority", -kMostLevel, kMostLevel));
  if (priority) {
    claim.level = static_cast<int32_t>(*priority);
  }
  ASSIGN_OR_RETURN(const Json* slo, fields.object("slo"));
  if (slo != nullptr) {
    RETURN_IF_ERROR(check_names(*slo, "slo", kSloFields));
    const FieldReader slo_fields(*slo, "slo.");
    RETURN_IF_ERROR(parse_ttft(slo_fields, claim));
    RETURN_IF_ERROR(parse_tpot(slo_fields, claim));
  }
  return claim;
}

Result<bool> parse_explain(const FieldReader& fields) {
  ASSIGN_OR_RETURN(const Json* tandem, fields.object("tandem"));
  if (tandem == nullptr) {
    return false;
  }
  RETURN_IF_ERROR(check_names(*tandem, "tandem", kTandemFields));
  ASSIGN_OR_RETURN(const auto explain, FieldReader(*tandem, "tandem.").boolean("explain"));
  return explain.value_or(false);
}

std::string_view tier_used(const ServiceClaim& claim, const ServiceTerms& terms,
                           const ServiceDefaults& defaults) {
  if (terms.service_class == ServiceClass::kBestEffort) {
    return "flex";
  }
  const bool chosen =
      claim.service_class.has_value() || defaults.service_class != ServiceClass::kLatencySensitive;
  return chosen ? "priority" : "default";
}

}  // namespace tandem::openai
