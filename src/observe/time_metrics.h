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
  // A step that was predicted, and the budget of time that its policy kept to; others are left out.
  void add(const StepRecord& record);

 private:
  struct Regime {
    prometheus::Histogram* error = nullptr;
    prometheus::Counter* predicted = nullptr;
    prometheus::Counter* measured = nullptr;
    prometheus::Gauge* correction = nullptr;
  };
  Regime& of(std::string_view name);
  void add_budget(const StepRecord& record);

  const prometheus::Labels labels_;
  prometheus::Family<prometheus::Histogram>& error_;
  prometheus::Family<prometheus::Counter>& predicted_;
  prometheus::Family<prometheus::Counter>& measured_;
  prometheus::Family<prometheus::Gauge>& correction_;
  prometheus::Family<prometheus::Gauge>& budget_;
  prometheus::Family<prometheus::Gauge>& budget_left_;
  std::map<std::string, Regime, std::less<>> regimes_;
  prometheus::Gauge* budget_now_ = nullptr;  // both null until a policy had a budget
  prometheus::Gauge* budget_left_now_ = nullptr;
};

}  // namespace tandem::observe
