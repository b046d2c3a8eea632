#include "engine/service_record.h"

#include <algorithm>
#include <array>

namespace tandem {
namespace {

ServedTimes times_of(const LiveSequence& sequence) {
  ServedTimes times;
  times.output_tokens = sequence.output_tokens();
  if (times.output_tokens > 0) {
    times.ttft = sequence.first_token - sequence.arrived;
    times.first_to_last = sequence.last_token - sequence.first_token;
  }
  return times;
}

observe::SloOutcome outcome_of(const LiveSequence& sequence, const SloVerdict& verdict,
                               FinishReason reason, Nanos now) {
  const Slo& slo = sequence.owner->request.slo;
  if (!slo.ttft && !slo.tpot) {
    return observe::SloOutcome::kNoTargets;
  }
  if (reason == FinishReason::kError) {
    return observe::SloOutcome::kMissed;
  }
  if (reason == FinishReason::kCancelled) {
    // Without a token its target may still lie ahead.
    const bool still_open =
        sequence.output_tokens() == 0 &&
        (!slo.ttft || now - sequence.arrived <= slo.ttft->target(sequence.prompt_tokens));
    return still_open || verdict.met() ? observe::SloOutcome::kAborted
                                       : observe::SloOutcome::kMissed;
  }
  return verdict.met() ? observe::SloOutcome::kMet : observe::SloOutcome::kMissed;
}

}  // namespace

observe::RequestRecord record_of_end(const LiveSequence& sequence, FinishReason reason, Nanos now) {
  constexpr std::array<const char*, 4> kNames = {"stop", "length", "abort", "error"};
  observe::RequestRecord record;
  record.service_class = sequence.service_class;
  record.verdict = judge(sequence.owner->request.slo, sequence.prompt_tokens, times_of(sequence));
  record.slo = outcome_of(sequence, record.verdict, reason, now);
  record.finish_reason = kNames.at(static_cast<size_t>(reason));
  record.prompt_tokens = sequence.prompt_tokens;
  record.output_tokens = sequence.output_tokens();
  RequestState& request = *sequence.owner;
  request.max_output_tokens = std::max(request.max_output_tokens, record.output_tokens);
  request.ended_choices += 1 + static_cast<int32_t>(sequence.forks.size());
  if (request.ended_choices == request.request.n) {
    record.max_output_tokens = request.max_output_tokens;
  }
  record.cached_tokens = sequence.cached_tokens;
  record.n = sequence.owner->request.n;
  record.max_tokens = sequence.sampling().max_tokens;
  record.arrived = sequence.owner->arrived;
  record.admitted = sequence.admitted;
  record.first_token = sequence.first_token;
  record.last_token = sequence.last_token;
  record.ended = now;
  return record;
}

std::unique_ptr<ServiceReport> make_report(const LiveSequence& sequence, int32_t hops_per_token) {
  const Request& request = sequence.owner->request;
  const ServedTimes times = times_of(sequence);
  auto report = std::make_unique<ServiceReport>();
  report->service_class = sequence.service_class;
  report->level = sequence.level;
  if (request.slo.ttft) {
    report->ttft_target = request.slo.ttft->target(sequence.prompt_tokens);
  }
  report->tpot_target = request.slo.tpot;
  report->slo_met = judge(request.slo, sequence.prompt_tokens, times).met();
  if (sequence.admitted_before) {
    report->queue = sequence.admitted - sequence.arrived;
  }
  report->ttft = times.ttft;
  report->forecast_ttft = sequence.owner->forecast_ttft;
  if (times.output_tokens > 1) {
    report->mean_gap = times.first_to_last / (times.output_tokens - 1);
  }
  report->most_gap = sequence.most_gap;
  report->host_tokens = sequence.host_tokens;
  report->device_tokens = static_cast<int32_t>(times.output_tokens) - sequence.host_tokens;
  report->hops = int64_t{sequence.host_tokens} * hops_per_token;
  report->parked = sequence.parked;
  report->preemptions = sequence.preemptions;
  return report;
}

}  // namespace tandem
