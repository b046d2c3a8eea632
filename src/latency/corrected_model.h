// A step-time model that learns while it serves: every finished step moves a factor by which the
// model under it is multiplied. There is one factor for each regime (decode only, mixed, prompts
// only), without visitors, with visitors in groups, and with lanes, whose factors begin with the
// values of steps without visitors. Factors move slowly and stay between 0.5 and 2, so one
// stalled step changes little and a wrong profile is bent back, but never trusted to be anything.
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

  // A step of this shape took `measured`, without the time for which a step with lanes was held up
  // by the host. Steps of visitors alone are not learnt from: they wait for the host.
  void observe(const StepShape& shape, Nanos measured);

  // The factor that steps of this shape's regime are multiplied by, the error included.
  [[nodiscard]] double correction(const StepShape& shape) const;
  // The model as it was fitted.
  [[nodiscard]] const StepTimeModel& uncorrected() const { return *model_; }

 private:
  // How a step's visitors join it.
  enum class Join : uint8_t { kNone, kGroups, kLanes };
  static constexpr size_t kJoins = 3;
  struct Factor {
    std::atomic<double> value{1};
    std::atomic<int64_t> observed{0};
  };
  [[nodiscard]] static Join join_of(const StepShape& shape);
  [[nodiscard]] static size_t index(Regime regime, Join join) {
    return static_cast<size_t>(regime) + static_cast<size_t>(join) * kRegimes;
  }
  [[nodiscard]] double learnt(Regime regime, Join join) const;
  [[nodiscard]] double factor(Regime regime, Join join) const {
    return error_ * learnt(regime, join);
  }
  [[nodiscard]] double times(const StepShape& shape, Regime regime, Join join) const;
  [[nodiscard]] double residents(const StepShape& shape, Join join) const;

  const std::unique_ptr<const StepTimeModel> model_;
  const double error_;
  std::array<Factor, kJoins * kRegimes> factors_;
};

// A part of the regime's name in metrics: "decode", "mixed", "prefill".
std::string_view regime_name(Regime regime);

}  // namespace tandem::latency
