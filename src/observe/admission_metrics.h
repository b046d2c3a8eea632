// Prometheus series of admission: what was decided and how fast, and how good the forecasts were.
// Threads: decided from any, add from one.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include "observe/records.h"

namespace tandem::observe {

class AdmissionMetrics {
 public:
  AdmissionMetrics(prometheus::Registry& registry, const prometheus::Labels& labels);
  void decided(const AdmissionRecord& record);
  // First tokens that were promised.
  void add(const StepRecord& record);

 private:
  const prometheus::Labels labels_;
  prometheus::Family<prometheus::Counter>& decisions_;
  prometheus::Histogram* verdict_time_;
  prometheus::Histogram* error_;
  prometheus::Counter* forecast_;
  prometheus::Counter* measured_;
  prometheus::Histogram* late_;
  prometheus::Gauge* last_forecast_;
};

}  // namespace tandem::observe
