#include "request/slo.h"

#include <fmt/format.h>

#include "base/units.h"

namespace tandem {

Result<TtftRule> parse_ttft_rule(std::string_view text) {
  const auto fail = [&](const Error& cause) {
    return invalid_argument(fmt::format(
        "'{}' is not a TTFT rule such as 500ms or 500ms+2ms/tok,max=8s: {}", text, cause.message));
  };
  TtftRule rule;
  std::string_view rest = text;
  if (const size_t comma = rest.find(','); comma != std::string_view::npos) {
    std::string_view cap = rest.substr(comma + 1);
    if (!cap.starts_with("max=")) {
      return fail(
          invalid_argument(fmt::format("'{}' after the comma should be max=DURATION", cap)));
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
      return fail(
          invalid_argument(fmt::format("'{}' after the plus should be DURATION/tok", slope)));
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
  return rule;
}

}  // namespace tandem
