// What an executor is made from must fit together: options are the caller's (errors), weights our
// own loader's (CHECK).
#pragma once

#include "base/result.h"
#include "exec/forward_executor.h"
#include "model/config.h"
#include "model/weights.h"

namespace tandem {

// `kernels_run`: kernels work on the KV, which take fewer sizes of blocks than a simulated machine.
Status check_options(const model::ModelConfig& config, const ExecutorOptions& options,
                     bool kernels_run);
void check_weights(const model::ModelConfig& config, const model::Weights& weights);

}  // namespace tandem
