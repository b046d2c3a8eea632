#include "node/refusal.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/units.h"

namespace tandem {
namespace {

std::string millis(Nanos time) {
  constexpr Nanos kLeastShown = std::chrono::microseconds(50);  // below it 0.0 ms would be read
  return time > Nanos{0} && time < kLeastShown ? format_duration(time)
                                               : fmt::format("{:.1f} ms", to_millis(time));
}

std::string forecast(const AdmissionVerdict& verdict) {
  return verdict.ttft.has_value() ? millis(*verdict.ttft) : "more than a day";
}

std::string own_target(const AdmissionAsk& ask) {
  return fmt::format("its target is {}, of which a tenth is kept in reserve", millis(ask.ttft));
}

std::string cause(const AdmissionAsk& ask, const AdmissionVerdict& verdict) {
  switch (verdict.reason) {
    case RefusalReason::kFirstToken:
      return fmt::format("by forecast its first token would come after {}; {}", forecast(verdict),
                         own_target(ask));
    case RefusalReason::kOthersFirstToken:
      return fmt::format(
          "with it the first token of a request that was accepted before would come after its "
          "target; its own would come after {}",
          forecast(verdict));
    case RefusalReason::kTokenTime:
      return fmt::format(
          "by forecast a token would take {} with it, more than the shortest TPOT "
          "target of those that are served",
          millis(verdict.step_time));
    case RefusalReason::kBlocks:
      return "the KV of the latency-sensitive requests that were accepted before needs all memory";
    case RefusalReason::kPlaces:
      return "as many latency-sensitive sequences are accepted as can run (--max-num-seqs)";
    case RefusalReason::kNeverFirstToken:
      return fmt::format("even on an idle server its first token would take {}; {}",
                         forecast(verdict), own_target(ask));
    case RefusalReason::kNeverTokenTime:
      return fmt::format("even on an idle server a token would take {}, and its TPOT target is {}",
                         millis(verdict.step_time), millis(ask.tpot));
    case RefusalReason::kNone:
      break;
  }
  CHECK(false, "a refusal without a reason");
}

}  // namespace

Refusal describe_refusal(const AdmissionAsk& ask, const AdmissionVerdict& verdict) {
  CHECK(verdict.answer == AdmissionAnswer::kRefuse, "a verdict of {}", answer_name(verdict.answer));
  Refusal refusal;
  const std::string cure =
      verdict.retry_after.has_value()
          ? fmt::format(
                "retry after {}, allow it more time (slo), or send it as best effort "
                "(service_tier flex)",
                millis(*verdict.retry_after))
          : "allow it more time (slo), shorten the prompt, or send it as best effort (service_tier "
            "flex)";
  refusal.error = {ErrorCode::kOverloaded,
                   fmt::format("the request was not accepted: {}; {}", cause(ask, verdict), cure),
                   ""};
  refusal.reason = reason_name(verdict.reason);
  refusal.ttft = verdict.ttft;
  if (ask.ttft < Nanos::max()) {
    refusal.ttft_target = ask.ttft;
  }
  refusal.retry_after = verdict.retry_after;
  refusal.retry =
      verdict.retry_after.has_value() ? Refusal::Retry::kWorthIt : Refusal::Retry::kUseless;
  return refusal;
}

}  // namespace tandem
