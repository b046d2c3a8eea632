// Service classes and their targets: TTFT is a rule of the prompt length, TPOT a
// constant. What is parsed here is checked: a target is a time of 1 us to 24 h, never 0, negative
// or no number. Errors say what is wrong and what would be right; the caller names the field.
// Threads: any.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace tandem {

enum class ServiceClass : uint8_t { kLatencySensitive, kBestEffort };
inline constexpr size_t kServiceClasses = 2;
// For code that names both in one line.
inline constexpr ServiceClass kLs = ServiceClass::kLatencySensitive;
inline constexpr ServiceClass kBe = ServiceClass::kBestEffort;

constexpr std::string_view class_name(ServiceClass service_class) {
  return service_class == ServiceClass::kLatencySensitive ? "latency_sensitive" : "best_effort";
}
// By its name, or by OpenAI's name of the tier: priority or flex.
Result<ServiceClass> parse_service_class(std::string_view text);

inline constexpr Nanos kShortestTarget = std::chrono::microseconds(1);
inline constexpr Nanos kLongestTarget = std::chrono::hours(24);

// TTFT <= min(max(base, per_token * prompt_tokens), cap).
struct TtftRule {
  Nanos base{0};
  Nanos per_token{0};
  Nanos cap{Nanos::max()};
  [[nodiscard]] Nanos target(int64_t prompt_tokens) const {
    const bool fits = prompt_tokens <= 0 || per_token <= Nanos::max() / prompt_tokens;
    return std::min(fits ? std::max(base, per_token * prompt_tokens) : Nanos::max(), cap);
  }
  bool operator==(const TtftRule&) const = default;
};

// When something that arrived then is due by a target from its arrival; Nanos::max(): never.
constexpr Nanos due_at(Nanos arrived, Nanos target) {
  return target < Nanos::max() - arrived ? arrived + target : Nanos::max();
}

struct Slo {
  std::optional<TtftRule> ttft;  // absent: throughput mode
  std::optional<Nanos> tpot;
  bool operator==(const Slo&) const = default;
};

// "500ms", "500ms+2ms/tok", "500ms+2ms/tok,max=8s".
Result<TtftRule> parse_ttft_rule(std::string_view text);
// The shortest text that parse_ttft_rule reads as this rule.
std::string format_ttft_rule(const TtftRule& rule);
// "50ms".
Result<Nanos> parse_target(std::string_view text);
// 50 or "50.5", as JSON fields and headers have it.
Result<Nanos> target_of_millis(double millis);
Result<Nanos> parse_target_millis(std::string_view text);

// What came of a sequence, as far as its targets go. Times are those of the engine.
struct ServedTimes {
  std::optional<Nanos> ttft;  // absent: no token came
  Nanos first_to_last{0};
  int64_t output_tokens = 0;
};
struct SloVerdict {
  bool ttft_kept = true;
  bool tpot_kept = true;
  [[nodiscard]] bool met() const { return ttft_kept && tpot_kept; }
};
// An absent target is kept; a TTFT target without a first token is not. TPOT is the time from the
// first to the last token over the tokens after the first, and kept below two tokens.
SloVerdict judge(const Slo& slo, int64_t prompt_tokens, const ServedTimes& served);

}  // namespace tandem
