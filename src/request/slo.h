// Service classes and their targets (decisions.md 9): TTFT is a rule of the prompt length, TPOT a
// constant.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace tandem {

enum class ServiceClass : uint8_t { kLatencySensitive, kBestEffort };

constexpr std::string_view class_name(ServiceClass service_class) {
  return service_class == ServiceClass::kLatencySensitive ? "latency_sensitive" : "best_effort";
}

// TTFT <= min(max(base, per_token * prompt_tokens), cap).
struct TtftRule {
  Nanos base{0};
  Nanos per_token{0};
  Nanos cap{Nanos::max()};
  [[nodiscard]] Nanos target(int64_t prompt_tokens) const {
    return std::min(std::max(base, per_token * prompt_tokens), cap);
  }
};

struct Slo {
  std::optional<TtftRule> ttft;  // absent: throughput mode
  std::optional<Nanos> tpot;
};

// "500ms", "500ms+2ms/tok", "500ms+2ms/tok,max=8s".
Result<TtftRule> parse_ttft_rule(std::string_view text);

}  // namespace tandem
