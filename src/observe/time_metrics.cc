#include "observe/time_metrics.h"
#include "observe/family.h"

#include <cmath>

namespace tandem::observe {
namespace {

const prometheus::Histogram::BucketBoundaries kStepErrors = {0.005, 0.01, 0.02, 0.03, 0.05, 0.07,
                                                             0.1,   0.15, 0.2,  0.3,  0.5,  1.0};

}  // namespace

TimeMetrics::TimeMetrics(prometheus::Registry& registry, const prometheus::Labels& labels)
    : labels_(labels),
      error_(family(prometheus::BuildHistogram(), "tandem_step_time_error_ratio",
                    "|predicted - measured| / measured of each step", registry)),
      predicted_(family(prometheus::BuildCounter(), "tandem_step_time_predicted_seconds_total",
                        "Step time as it was predicted", registry)),
      measured_(family(prometheus::BuildCounter(), "tandem_step_time_measured_seconds_total",
                       "Step time of the predicted steps as it was", registry)),
      correction_(family(prometheus::BuildGauge(), "tandem_step_time_correction",
                         "Factor by which the profile's times are multiplied now", registry)),
      budget_(family(prometheus::BuildGauge(), "tandem_step_budget_seconds",
                     "Time of a step into which best effort must fit now", registry)),
      budget_left_(
          family(prometheus::BuildGauge(), "tandem_step_budget_left_seconds",
                 "Step budget less the predicted time of the last step; negative: it took more",
                 registry)) {}

TimeMetrics::Regime& TimeMetrics::of(std::string_view name) {
  const auto found = regimes_.find(name);
  if (found != regimes_.end()) {
    return found->second;
  }
  prometheus::Labels labels = labels_;
  labels.emplace("regime", name);
  const Regime made{.error = &error_.Add(labels, kStepErrors),
                    .predicted = &predicted_.Add(labels),
                    .measured = &measured_.Add(labels),
                    .correction = &correction_.Add(labels)};
  return regimes_.emplace(name, made).first->second;
}

void TimeMetrics::add(const StepRecord& record) {
  const double predicted = to_seconds(record.predicted);
  const double measured = to_seconds(record.duration);
  if (predicted <= 0 || measured <= 0) {
    return;
  }
  Regime& regime = of(record.regime);
  regime.error->Observe(std::abs(predicted - measured) / measured);
  regime.predicted->Increment(predicted);
  regime.measured->Increment(measured);
  regime.correction->Set(record.correction);
  add_budget(record);
}

void TimeMetrics::add_budget(const StepRecord& record) {
  if (record.step_budget == Nanos{0}) {
    return;
  }
  if (budget_now_ == nullptr) {
    budget_now_ = &budget_.Add(labels_);
    budget_left_now_ = &budget_left_.Add(labels_);
  }
  budget_now_->Set(to_seconds(record.step_budget));
  budget_left_now_->Set(to_seconds(record.step_budget - record.predicted));
}

}  // namespace tandem::observe
