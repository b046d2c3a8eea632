// A planned model with its weights and the executor that runs its steps. Stays where it is: the
// executor refers to the weights. Threads: one owner at a time; the executor's rules are its own.
#pragma once

#include <functional>
#include <memory>

#include "base/result.h"
#include "exec/forward_executor.h"
#include "model/weights.h"
#include "node/late_binder.h"
#include "node/planned_model.h"

namespace tandem {

struct LoadedModel {
  model::Weights weights;
  std::unique_ptr<LateBinder> binder;  // of visitors; null: there is one tier
  std::unique_ptr<ForwardExecutor> executor;
};

// Whether the model's files hold the weights that load_model needs. It reads the
// parts of the files that model::check_weights names.
Status check_weights(const PlannedModel& model);

// Loads the weights (none for a hollow device) and makes the executor, which calls `on_step` as
// ForwardExecutor::create says. `model` must outlive the result.
Result<std::unique_ptr<LoadedModel>> load_model(
    const PlannedModel& model, const std::function<void(const model::LoadProgress&)>& progress,
    std::function<void()> on_step);

}  // namespace tandem
