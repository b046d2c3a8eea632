// HyGen's predictor (4.2): linear in six features of a batch, S_p, S_d, S_p^2, S_d^2, N_p, N_d, and
// here also rows x tokens before them for chunks of prompts. S_p counts rows of prompts, S_d the
// tokens that decodes attend to, N_p and N_d sequences.
//
// It knows no stages: what it says of them is the step's time in equal parts, and a visitor counts
// as a row of a prompt in its stage. Coefficients are never negative, so it is monotone. Immutable;
// any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "latency/step_time_model.h"

namespace tandem::latency {

// Nanoseconds for one of each feature.
struct RegressionCosts {
  int32_t layers = 1;
  double fixed = 0;
  double prefill_rows = 0;    // S_p
  double decode_context = 0;  // S_d
  double prefill_rows_squared = 0;
  double decode_context_squared = 0;
  double prefill_slices = 0;  // N_p
  double decode_rows = 0;     // N_d
  double prefix_products = 0;
};

class RegressionModel final : public StepTimeModel {
 public:
  // An error names the coefficient that is negative, not finite or out of range.
  static Result<RegressionModel> create(const RegressionCosts& costs);

  [[nodiscard]] std::string_view name() const override { return "regression"; }
  [[nodiscard]] int32_t layers() const override { return costs_.layers; }
  [[nodiscard]] Nanos step_time(const StepShape& shape) const override;
  [[nodiscard]] Nanos time_before_stage(const StepShape& shape, int32_t stage) const override;
  [[nodiscard]] Nanos visit_time(const StageRows& at, int64_t visitors) const override;

  [[nodiscard]] const RegressionCosts& costs() const { return costs_; }

  static constexpr size_t kFeatures = 8;  // `fixed` and the seven others, in their order above
  static std::array<double, kFeatures> features(const StepShape& shape);

 private:
  explicit RegressionModel(const RegressionCosts& costs) : costs_(costs) {}
  RegressionCosts costs_;
};

}  // namespace tandem::latency
