// Starts attention on threads of this process, for the executor's second tier.
#pragma once

#include <memory>

#include "base/result.h"
#include "device/device.h"
#include "exec/forward_executor.h"
#include "exec/host_tier/hop_memory.h"
#include "model/config.h"
#include "model/weights.h"
#include "piggyback/attention_host.h"
#include "piggyback/workers/attention_workers.h"

namespace tandem {

// What any host attends for this model: shapes and memory.
piggyback::AttentionSpec attention_spec(const model::ModelConfig& config,
                                        const model::Weights& weights,
                                        const ExecutorOptions& options, const HopMemory& memory);

// `options` with use_threads. May plant faults into the workers.
Result<std::unique_ptr<piggyback::AttentionWorkers>> start_attention_workers(
    const piggyback::AttentionSpec& spec, const model::ModelConfig& config,
    const ExecutorOptions& options, const device::Device& device, HostMemory& memory);

}  // namespace tandem
