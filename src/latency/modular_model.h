// OmniServe's step-time model (3.3.1): a step is the sum of its modules. Dense stages by a ladder
// over rows, prefill attention linear in pairs, decode attention a x context + h x sequences + b,
// the last stage by its logit rows, and what routing a visitor costs. All measured, see profiler.h.
//
// Coefficients are nanoseconds for all layers together, never negative; so the model is monotone.
// Immutable; any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "latency/host_times.h"
#include "latency/ladder.h"
#include "latency/step_time_model.h"

namespace tandem::latency {

struct PrefillAttention {
  double per_pair = 0;   // a_PA
  double per_row = 0;    // reading and writing q and the result
  double per_slice = 0;  // a slice's rows do not fill the last tile
  double fixed = 0;      // b_PA, where there is any
};

struct DecodeAttention {
  double per_context = 0;  // a_DA
  double per_row = 0;      // h_DA
  double fixed = 0;        // b_DA, where there is any
};

struct ModularCosts {
  int32_t layers = 1;
  double fixed = 0;              // of a step: launch, and the way back of its results
  Ladder dense;                  // by rows: stages 0 .. layers - 1
  double first_stage_share = 0;  // of `dense`; the other stages share the rest equally
  Ladder head;                   // by logit rows: the last stage and sampling
  PrefillAttention prefill;
  DecodeAttention decode;
  double per_visit = 0;  // one visitor at one stage, beside its row
  AlphaBeta collective;  // by rows, at each stage: 0 unless a model is split over devices
};

class ModularModel final : public StepTimeModel {
 public:
  // An error names the coefficient that is negative, not finite or out of range.
  static Result<ModularModel> create(ModularCosts costs);

  [[nodiscard]] std::string_view name() const override { return "modular"; }
  [[nodiscard]] int32_t layers() const override { return costs_.layers; }
  [[nodiscard]] Nanos step_time(const StepShape& shape) const override;
  [[nodiscard]] Nanos time_before_stage(const StepShape& shape, int32_t stage) const override;
  [[nodiscard]] Nanos visit_time(const StageRows& at, int64_t visitors) const override;
  [[nodiscard]] std::optional<StepParts> parts(const StepShape& shape) const override;

  [[nodiscard]] const ModularCosts& costs() const { return costs_; }

 private:
  explicit ModularModel(ModularCosts costs) : costs_(std::move(costs)) {}
  // Of stages 0 .. layers - 1, all together.
  [[nodiscard]] double dense(double rows) const;
  [[nodiscard]] double dense(const StepShape& shape) const;
  [[nodiscard]] double head(const StepShape& shape) const;
  [[nodiscard]] double attention(const StepShape& shape) const;
  [[nodiscard]] double share_before(int32_t stage) const;
  [[nodiscard]] double share_of(int32_t stage) const;

  ModularCosts costs_;
};

// A machine that is known by a few numbers, for tests and scenarios: every row costs the same.
struct SimpleCosts {
  int32_t layers = 1;
  Nanos fixed{0};    // of a step
  Nanos per_row{0};  // in all dense stages together
  Nanos per_logit{0};
  double per_context_nanos = 0;  // of decodes
  double per_pair_nanos = 0;     // of prompts
};
ModularModel simple_model(const SimpleCosts& costs);

}  // namespace tandem::latency
