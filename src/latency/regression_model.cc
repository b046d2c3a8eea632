#include "latency/regression_model.h"

#include "base/check.h"
#include "latency/coefficients.h"

namespace tandem::latency {

Result<RegressionModel> RegressionModel::create(const RegressionCosts& costs) {
  RETURN_IF_ERROR(check_layers(costs.layers));
  RETURN_IF_ERROR(check_coefficient("fixed", costs.fixed, kMostNanos));
  for (const auto& [what, value] : {std::pair{"prefill_rows", costs.prefill_rows},
                                    {"decode_context", costs.decode_context},
                                    {"prefill_rows_squared", costs.prefill_rows_squared},
                                    {"decode_context_squared", costs.decode_context_squared},
                                    {"prefill_slices", costs.prefill_slices},
                                    {"decode_rows", costs.decode_rows},
                                    {"prefix_products", costs.prefix_products}}) {
    RETURN_IF_ERROR(check_coefficient(what, value, kMostRowNanos));
  }
  return RegressionModel(costs);
}

std::array<double, RegressionModel::kFeatures> RegressionModel::features(const StepShape& shape) {
  const auto prefill = static_cast<double>(shape.prefill_rows);
  const auto context = static_cast<double>(shape.decode_context);
  return {1.0,
          prefill,
          context,
          prefill * prefill,
          context * context,
          static_cast<double>(shape.prefill_slices),
          static_cast<double>(shape.decode_rows),
          static_cast<double>(shape.prefix_products)};
}

Nanos RegressionModel::step_time(const StepShape& shape) const {
  if (shape.empty()) {
    return Nanos{0};
  }
  const std::array<double, kFeatures> x = features(shape);
  const double visitors =
      (static_cast<double>(shape.visits) + shape.visitor_logits) / (costs_.layers + 1);
  return to_nanos(costs_.fixed + costs_.prefill_rows * (x[1] + visitors) +
                  costs_.decode_context * x[2] + costs_.prefill_rows_squared * x[3] +
                  costs_.decode_context_squared * x[4] + costs_.prefill_slices * x[5] +
                  costs_.decode_rows * x[6] + costs_.prefix_products * x[7]);
}

Nanos RegressionModel::time_before_stage(const StepShape& shape, int32_t stage) const {
  CHECK(stage >= 0 && stage <= costs_.layers, "stage {} of a model of {} layers", stage,
        costs_.layers);
  return share_of(step_time(shape), stage, costs_.layers + 1);
}

Nanos RegressionModel::visit_time(const StageRows& at, int64_t visitors) const {
  CHECK(at.stage >= 0 && at.stage <= costs_.layers, "stage {} of a model of {} layers", at.stage,
        costs_.layers);
  return visitors <= 0
             ? Nanos{0}
             : to_nanos(costs_.prefill_rows * static_cast<double>(visitors) / (costs_.layers + 1));
}

}  // namespace tandem::latency
