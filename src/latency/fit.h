// From timed steps to step-time models. Every fit keeps coefficients from being negative, so what
// comes out is monotone. Plain functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "latency/modular_model.h"
#include "latency/regression_model.h"
#include "latency/step_shape.h"
#include "latency/table_model.h"

namespace tandem::latency {

struct Sample {
  StepShape shape;
  double nanos = 0;
};

// What is known of the model that is served, not measured.
struct ModelFacts {
  int32_t layers = 1;
  // Of the dense work of stages 0 .. layers - 1, by weights: stage 0 has no post-attention part.
  double first_stage_share = 1;
};

// Rows at which the ladders bend: what Algorithm 1 measured. Ascending, each at least one.
struct LadderKnots {
  std::vector<int64_t> dense;
  std::vector<int64_t> head;
};

// All modules of the modular model at once. Samples without visitors.
Result<ModularModel> fit_modular(std::span<const Sample> samples, const ModelFacts& facts,
                                 const LadderKnots& knots);

// HyGen's six features and one more.
Result<RegressionModel> fit_regression(std::span<const Sample> samples, int32_t layers);

// SLINFER's tables, of batches on their grid: prompts alone and whole, decodes alone of one
// context. `samples` also hold chunks after a prefix, for what those pay.
struct TableSamples {
  std::vector<Sample> prefill;
  std::vector<Sample> decode;
};
Result<TableModel> fit_table(const TableSamples& grid, std::span<const Sample> samples,
                             int32_t layers);

}  // namespace tandem::latency
