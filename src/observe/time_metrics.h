// Prometheus series of how well steps are predicted, by regime. Threads: one writer.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <map>
#include <string>

#include "observe/records.h"

namespace tandem::observe {

class TimeMetrics {
 public:
  TimeMetrics(prometheus::Registry& registry, const prometheus::Labels& labels);
  // A step that was predicted; others are left out.
  void add(const StepRecord& record);

 private:
  struct Regime {
    prometheus::Histogram* error = nullptr;
    prometheus::Counter* predicted = nullptr;
    prometheus::Counter* measured = nullptr;
    prometheus::Gauge* correction = nullptr;
  };
  Regime& of(std::string_view name);

  const prometheus::Labels labels_;
  prometheus::Family<prometheus::Histogram>& error_;
  prometheus::Family<prometheus::Counter>& predicted_;
  prometheus::Family<prometheus::Counter>& measured_;
  prometheus::Family<prometheus::Gauge>& correction_;
  std::map<std::string, Regime, std::less<>> regimes_;
};

}  // namespace tandem::observe
