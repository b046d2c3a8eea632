#include "request/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/units.h"

namespace tandem {

namespace {

Error forbidden(std::string field, const std::string& message) {
  return {ErrorCode::kForbidden, message, std::move(field)};
}

Result<std::optional<TtftRule>> settle_ttft(const ServiceClaim& claim, const ServiceGrant& grant,
                                            const std::optional<TtftRule>& given, int64_t tokens) {
  const auto too_short = [&](const TtftRule& rule) {
    return grant.least_ttft && rule.target(tokens) < grant.least_ttft->target(tokens);
  };
  if (claim.ttft) {
    if (too_short(*claim.ttft)) {
      return forbidden(
          claim.ttft_name,
          fmt::format("'{}' asks for {} with a prompt of {} tokens; this API key may ask for {} "
                      "and more: ask for that, or leave it out",
                      claim.ttft_name, format_duration(claim.ttft->target(tokens)), tokens,
                      format_duration(grant.least_ttft->target(tokens))));
    }
    return claim.ttft;
  }
  return given && too_short(*given) ? grant.least_ttft : given;
}

Result<std::optional<Nanos>> settle_tpot(const ServiceClaim& claim, const ServiceGrant& grant,
                                         const std::optional<Nanos>& given) {
  if (claim.tpot) {
    if (grant.least_tpot && *claim.tpot < *grant.least_tpot) {
      return forbidden(claim.tpot_name,
                       fmt::format("'{}' asks for {}; this API key may ask for {} and more: ask "
                                   "for that, or leave it out",
                                   claim.tpot_name, format_duration(*claim.tpot),
                                   format_duration(*grant.least_tpot)));
    }
    return claim.tpot;
  }
  return given && grant.least_tpot ? std::max(given, grant.least_tpot) : given;
}

}  // namespace

ServiceClaim claim_over(ServiceClaim upper, const ServiceClaim& lower) {
  if (!upper.service_class) {
    upper.service_class = lower.service_class;
  }
  if (!upper.level) {
    upper.level = lower.level;
  }
  if (!upper.ttft) {
    upper.ttft = lower.ttft;
    upper.ttft_name = lower.ttft_name;
  }
  if (!upper.tpot) {
    upper.tpot = lower.tpot;
    upper.tpot_name = lower.tpot_name;
  }
  return upper;
}

std::vector<std::string_view> ignored_fields(const ServiceClaim& claim, const ServiceFields& read) {
  std::vector<std::string_view> ignored;
  const std::array<bool, kClaimFields.size()> unread = {
      claim.service_class && !read.service_class, claim.level && !read.level,
      claim.ttft && !read.targets, claim.tpot && !read.targets};
  for (size_t i = 0; i < unread.size(); ++i) {
    if (unread[i]) {
      ignored.push_back(kClaimFields[i]);
    }
  }
  return ignored;
}

Result<ServiceTerms> settle(const ServiceClaim& claim, const ServiceGrant& grant,
                            const ServiceDefaults& defaults, int64_t prompt_tokens) {
  const bool capped = grant.best_class == ServiceClass::kBestEffort;
  if (capped && claim.service_class == ServiceClass::kLatencySensitive) {
    return forbidden("service_tier",
                     "'service_tier' is \"priority\", but this API key may only be best effort: "
                     "ask for \"flex\", or leave it out");
  }
  if (claim.level && *claim.level < grant.least_level) {
    return forbidden("priority", fmt::format("'priority' is {}; this API key may ask for {} and "
                                             "above (lower goes first)",
                                             *claim.level, grant.least_level));
  }
  ServiceTerms terms;
  terms.service_class =
      capped ? ServiceClass::kBestEffort
             : claim.service_class.value_or(grant.service_class.value_or(defaults.service_class));
  terms.level = claim.level.value_or(std::max(grant.level.value_or(0), grant.least_level));
  Slo given;  // without being asked for
  if (terms.service_class == ServiceClass::kLatencySensitive) {
    given.ttft = grant.slo.ttft ? grant.slo.ttft : defaults.slo.ttft;
    given.tpot = grant.slo.tpot ? grant.slo.tpot : defaults.slo.tpot;
  }
  ASSIGN_OR_RETURN(terms.slo.ttft, settle_ttft(claim, grant, given.ttft, prompt_tokens));
  ASSIGN_OR_RETURN(terms.slo.tpot, settle_tpot(claim, grant, given.tpot));
  return terms;
}

}  // namespace tandem
