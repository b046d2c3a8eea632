// A step-time model that learns while it serves: every finished step moves a factor by which the
// model under it is multiplied. There is one factor for each regime (decode only, mixed, prompts
// only), with visitors and without. Factors move slowly and stay between 0.5 and 2, so one stalled
// step changes little and a wrong profile is bent back, but never trusted to be anything.
//
// Still monotone: a step is never cheaper than its prompts, its decodes or its visitors alone, each
// by the factor of its own regime.
//
// Threads: observe on the engine's thread; everything else from any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "latency/step_time_model.h"

namespace tandem::latency {

inline constexpr double kLeastCorrection = 0.5;
inline constexpr double kMostCorrection = 2.0;

class CorrectedModel final : public StepTimeModel {
 public:
  // `error`: a drill. Every answer is so many times what it ought to be, however much was learnt.
  explicit CorrectedModel(std::unique_ptr<const StepTimeModel> model, double error = 1);

  [[nodiscard]] std::string_view name() const override { return model_->name(); }
  [[nodiscard]] int32_t layers() const override { return model_->layers(); }
  [[nodiscard]] Nanos step_time(const StepShape& shape) const override;
  [[nodiscard]] Nanos time_before_stage(const StepShape& shape, int32_t stage) const override;
  [[nodiscard]] Nanos visit_time(const StageRows& at, int64_t visitors) const override;
  // Each part by the factor of the shape's regime.
  [[nodiscard]] std::optional<StepParts> parts(const StepShape& shape) const override;

  // A step of this shape took `measured`. Steps of visitors alone are not learnt from: they wait
  // for the host.
  void observe(const StepShape& shape, Nanos measured);

  // The factor that steps of this shape's regime are multiplied by, the error included.
  [[nodiscard]] double correction(const StepShape& shape) const;
  // The model as it was fitted.
  [[nodiscard]] const StepTimeModel& uncorrected() const { return *model_; }

 private:
  struct Factor {
    std::atomic<double> value{1};
    int64_t observed = 0;  // engine's thread
  };
  [[nodiscard]] static size_t index(Regime regime, bool visited) {
    return static_cast<size_t>(regime) + (visited ? kRegimes : 0);
  }
  [[nodiscard]] double factor(Regime regime, bool visited) const {
    return error_ * factors_[index(regime, visited)].value.load(std::memory_order_relaxed);
  }
  [[nodiscard]] double times(const StepShape& shape, Regime regime, bool visited) const;
  [[nodiscard]] double residents(const StepShape& shape, bool visited) const;

  const std::unique_ptr<const StepTimeModel> model_;
  const double error_;
  std::array<Factor, size_t{2} * kRegimes> factors_;
};

// A part of the regime's name in metrics: "decode", "mixed", "prefill".
std::string_view regime_name(Regime regime);

}  // namespace tandem::latency
