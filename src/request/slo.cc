#include "request/slo.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/units.h"

namespace tandem {

namespace {

constexpr std::string_view kTargets = "a time over 0, from 0.001 to 86400000 milliseconds (24 h)";

bool is_target(Nanos time) { return time >= kShortestTarget && time <= kLongestTarget; }

Status check(const TtftRule& rule) {
  const bool sound = rule.base >= Nanos{0} && rule.per_token >= Nanos{0} &&
                     rule.base <= kLongestTarget && rule.per_token <= kLongestTarget &&
                     is_target(rule.target(1));
  if (!sound) {
    return invalid_argument(fmt::format("a target must be {}", kTargets));
  }
  if (rule.cap != Nanos::max() && (!is_target(rule.cap) || rule.cap < rule.base)) {
    return invalid_argument(
        "max must be a time of at most 24 h and not below what stands before it");
  }
  return {};
}

}  // namespace

Result<ServiceClass> parse_service_class(std::string_view text) {
  if (text == "latency_sensitive" || text == "priority") {
    return ServiceClass::kLatencySensitive;
  }
  if (text == "best_effort" || text == "flex") {
    return ServiceClass::kBestEffort;
  }
  return invalid_argument(
      "a class is latency_sensitive (or priority), or best_effort (or flex), nothing else");
}

Result<TtftRule> parse_ttft_rule(std::string_view text) {
  const auto fail = [&](const Error& cause) {
    return invalid_argument(
        fmt::format("'{}' is not a TTFT rule such as 500ms or 500ms+2ms/tok,max=8s: {}",
                    text.substr(0, 80), cause.message));
  };
  TtftRule rule;
  std::string_view rest = text;
  if (const size_t comma = rest.find(','); comma != std::string_view::npos) {
    std::string_view cap = rest.substr(comma + 1);
    if (!cap.starts_with("max=")) {
      return fail(invalid_argument("what stands after the comma should be max=DURATION"));
    }
    const Result<Nanos> parsed = parse_duration(cap.substr(4));
    if (!parsed.ok()) {
      return fail(parsed.error());
    }
    rule.cap = *parsed;
    rest = rest.substr(0, comma);
  }
  if (const size_t plus = rest.find('+'); plus != std::string_view::npos) {
    std::string_view slope = rest.substr(plus + 1);
    if (!slope.ends_with("/tok")) {
      return fail(invalid_argument("what stands after the plus should be DURATION/tok"));
    }
    const Result<Nanos> parsed = parse_duration(slope.substr(0, slope.size() - 4));
    if (!parsed.ok()) {
      return fail(parsed.error());
    }
    rule.per_token = *parsed;
    rest = rest.substr(0, plus);
  }
  const Result<Nanos> base = parse_duration(rest);
  if (!base.ok()) {
    return fail(base.error());
  }
  rule.base = *base;
  if (const Status sound = check(rule); !sound.ok()) {
    return fail(sound.error());
  }
  return rule;
}

std::string format_ttft_rule(const TtftRule& rule) {
  std::string out = exact_duration(rule.base);
  if (rule.per_token > Nanos{0}) {
    out += fmt::format("+{}/tok", exact_duration(rule.per_token));
  }
  if (rule.cap != Nanos::max()) {
    out += fmt::format(",max={}", exact_duration(rule.cap));
  }
  return out;
}

Result<Nanos> parse_target(std::string_view text) {
  const Result<Nanos> parsed = parse_duration(text);
  if (!parsed.ok() || !is_target(*parsed)) {
    return invalid_argument(fmt::format("'{}' is not a target: write a duration such as 50ms, {}",
                                        text.substr(0, 80), "over 0 and at most 24 h"));
  }
  return *parsed;
}

Result<Nanos> target_of_millis(double millis) {
  constexpr double kNanosPerMilli = 1e6;
  const double least = to_millis(kShortestTarget);
  const double most = to_millis(kLongestTarget);
  if (!(millis >= least && millis <= most)) {  // also for NaN
    return invalid_argument(fmt::format("{} is not {}", millis, kTargets));
  }
  return Nanos(std::llround(millis * kNanosPerMilli));
}

Result<Nanos> parse_target_millis(std::string_view text) {
  double millis = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), millis, std::chars_format::fixed);
  if (error != std::errc() || end != text.data() + text.size()) {
    return invalid_argument(
        fmt::format("'{}' is not a plain number of milliseconds such as 500", text.substr(0, 80)));
  }
  return target_of_millis(millis);
}

SloVerdict judge(const Slo& slo, int64_t prompt_tokens, const ServedTimes& served) {
  SloVerdict verdict;
  if (slo.ttft) {
    verdict.ttft_kept = served.ttft && *served.ttft <= slo.ttft->target(prompt_tokens);
  }
  if (slo.tpot && served.output_tokens >= 2) {
    verdict.tpot_kept = served.first_to_last / (served.output_tokens - 1) <= *slo.tpot;
  }
  return verdict;
}

}  // namespace tandem
