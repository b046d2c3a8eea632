// Which class, level and targets a request gets: of what it says itself (body, then headers), what
// its API key gives, and what the server gives, each field by itself. And what a key may not claim:
// that is refused, never changed without a word. Threads: any; pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "request/slo.h"

namespace tandem {

// What a request says; absent fields say nothing. The names are those of the fields or headers, for
// errors.
struct ServiceClaim {
  std::optional<ServiceClass> service_class;  // body field service_tier
  std::optional<int32_t> level;               // body field priority
  std::optional<TtftRule> ttft;
  std::optional<Nanos> tpot;
  std::string ttft_name;
  std::string tpot_name;
};

// `upper` where it says something, `lower` elsewhere.
ServiceClaim claim_over(ServiceClaim upper, const ServiceClaim& lower);

// Which parts of a claim a scheduling policy reads.
struct ServiceFields {
  bool service_class = true;
  bool level = true;
  bool targets = true;  // TTFT and TPOT
};

// Names of the parts that a request claims and nothing reads: "class", "level", "ttft", "tpot".
std::vector<std::string_view> ignored_fields(const ServiceClaim& claim, const ServiceFields& read);
inline constexpr std::array<std::string_view, 4> kClaimFields = {"class", "level", "ttft", "tpot"};

// What an API key gives requests that say nothing, and the most that they may claim.
struct ServiceGrant {
  std::optional<ServiceClass> service_class;
  std::optional<int32_t> level;
  Slo slo;
  ServiceClass best_class = ServiceClass::kLatencySensitive;
  int32_t least_level = std::numeric_limits<int32_t>::min();  // lower goes first
  std::optional<TtftRule> least_ttft;                         // no shorter target than this
  std::optional<Nanos> least_tpot;
  bool operator==(const ServiceGrant&) const = default;
};

// What the server gives; the targets to latency-sensitive requests alone.
struct ServiceDefaults {
  ServiceClass service_class = ServiceClass::kLatencySensitive;
  Slo slo;
};

struct ServiceTerms {
  ServiceClass service_class = ServiceClass::kLatencySensitive;
  int32_t level = 0;
  Slo slo;
};

// The only error is kForbidden: the key may not claim that; it names the field and what it may.
// Targets that a key or the server gives are no claims: they are raised to what the key may.
Result<ServiceTerms> settle(const ServiceClaim& claim, const ServiceGrant& grant,
                            const ServiceDefaults& defaults, int64_t prompt_tokens);

}  // namespace tandem
