// What the scheduler believes about time: how long a step of a given shape takes, and each of its
// stages. One interface for all models (OmniServe 3.3.1, HyGen 4.2, SLINFER VI): ModularModel,
// RegressionModel, TableModel, and CorrectedModel, which learns online and is what policies get.
//
// It knows nothing of a simulated device's own costs: it is fitted by measuring alone (profiler.h)
// and by observing.
//
// Time is as the engine counts it: from the advance that plans and launches a step to the one that
// finds it done. Steps follow each other without a gap, so it is also what a decode waits for its
// next token.
//
// Monotone: more rows, more context, more logits or visitors are never cheaper, so the largest that
// fits can be found by bisection (questions.h). Cost: well under 1 us a question, no memory taken.
// Threads: const functions from any.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/clock.h"
#include "latency/step_shape.h"

namespace tandem::latency {

// Where visitors would join: stage 0 .. layers, and the rows that are there without them: a step's
// rows(), at the last stage its logit rows.
struct StageRows {
  int32_t stage = 0;
  int64_t rows = 0;
};

// A step's time by its parts, for policies that set parts of it against the host's time. Residents
// and visitors share the dense stages.
struct StepParts {
  Nanos fixed{0};              // of the step: launch, and the way back of its results
  Nanos dense{0};              // of one layer, by the rows of the step
  Nanos prefill_attention{0};  // of one layer
  Nanos decode_attention{0};   // of one layer
  Nanos head{0};               // the last stage, by its rows of logits
  Nanos visits{0};             // what routing the visitors adds to the step beside their rows
};

class StepTimeModel {
 public:
  virtual ~StepTimeModel() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  // A step has layers() + 1 stages; the last one computes logits.
  [[nodiscard]] virtual int32_t layers() const = 0;

  // The whole step. An empty shape takes no time.
  [[nodiscard]] virtual Nanos step_time(const StepShape& shape) const = 0;

  // Of step_time, how much has gone when `stage` begins, 0 <= stage <= layers: what a binder
  // compares with the time that has really gone. Attention belongs to the stage before it.
  [[nodiscard]] virtual Nanos time_before_stage(const StepShape& shape, int32_t stage) const = 0;

  // What `visitors` more rows at one stage add to the step: dense(n + p) - dense(n), with what
  // routing them costs. 0 for none.
  [[nodiscard]] virtual Nanos visit_time(const StageRows& at, int64_t visitors) const = 0;

  // Absent: the model knows whole steps only. fixed + layers() x (dense + both attentions) + head +
  // visits is step_time but for rounding, and but for the last layer's attention, which a step that
  // samples nothing leaves out.
  [[nodiscard]] virtual std::optional<StepParts> parts(const StepShape& /*shape*/) const {
    return std::nullopt;
  }
};

}  // namespace tandem::latency
