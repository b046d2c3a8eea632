#include "observe/admission_metrics.h"
#include "observe/family.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace tandem::observe {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

const Buckets kForecastErrors = {0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 2.0, 5.0};
const Buckets kVerdictSeconds = {1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4,
                                 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2};
const Buckets kLateSeconds = {0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0};

}  // namespace

AdmissionMetrics::AdmissionMetrics(prometheus::Registry& registry, const prometheus::Labels& labels)
    : labels_(labels),
      decisions_(family(prometheus::BuildCounter(), "tandem_admission_decisions_total",
                        "Latency-sensitive requests by what admission answered", registry)),
      verdict_time_(&family(prometheus::BuildHistogram(), "tandem_admission_seconds",
                            "Time that a decision took", registry)
                         .Add(labels, kVerdictSeconds)),
      error_(&family(prometheus::BuildHistogram(), "tandem_ttft_forecast_error_ratio",
                     "|forecast - measured| / measured of promised first tokens", registry)
                  .Add(labels, kForecastErrors)),
      forecast_(&family(prometheus::BuildCounter(), "tandem_ttft_forecast_seconds_total",
                        "TTFT of promised first tokens as it was forecast", registry)
                     .Add(labels)),
      measured_(&family(prometheus::BuildCounter(), "tandem_ttft_forecast_measured_seconds_total",
                        "TTFT of promised first tokens as it was", registry)
                     .Add(labels)),
      late_(&family(prometheus::BuildHistogram(), "tandem_promised_ttft_late_seconds",
                    "By how much promised first tokens came later than their target, of those that "
                    "did",
                    registry)
                 .Add(labels, kLateSeconds)),
      last_forecast_(&family(prometheus::BuildGauge(), "tandem_last_ttft_forecast_seconds",
                             "Forecast TTFT of the request that was decided last", registry)
                          .Add(labels)) {
  for (const char* answer : {"accepted", "queued"}) {
    prometheus::Labels named = labels_;
    named["answer"] = answer;
    decisions_.Add(named);
  }
}

void AdmissionMetrics::decided(const AdmissionRecord& record) {
  prometheus::Labels labels = labels_;
  labels["answer"] = record.answer;
  if (!record.reason.empty()) {
    labels["reason"] = record.reason;
  }
  decisions_.Add(labels).Increment();
  verdict_time_->Observe(to_seconds(record.took));
  if (record.forecast) {
    last_forecast_->Set(to_seconds(*record.forecast));
  }
}

void AdmissionMetrics::add(const StepRecord& record) {
  for (const PromisedFirstToken& token : record.promised_first_tokens) {
    const double forecast = to_seconds(token.forecast);
    const double measured = to_seconds(token.real);
    forecast_->Increment(std::max(forecast, 0.0));
    measured_->Increment(std::max(measured, 0.0));
    if (measured > 0) {
      error_->Observe(std::abs(forecast - measured) / measured);
    }
    if (token.real > token.target) {
      late_->Observe(to_seconds(token.real - token.target));
    }
  }
}

}  // namespace tandem::observe
