// The sizes of everything an executor allocates beside weights and KV, computed once: the memory
// plan prints them and the executor allocates them, so the two cannot differ. Plain arithmetic.
#pragma once

#include <cstdint>
#include <vector>

#include "device/device.h"
#include "exec/forward/stages.h"
#include "exec/forward_executor.h"
#include "kernels/kv_layout.h"
#include "model/config.h"
#include "model/weights.h"

namespace tandem {

// Byte sizes of the pieces, each its own allocation.
struct WorkspaceSizes {
  int64_t activations = 0;     // device
  int64_t logits = 0;          // device
  int64_t staging = 0;         // one step's input; four times: two steps, host and device
  int64_t device_results = 0;  // device
  int64_t host_results = 0;    // pinned
};

inline constexpr int kStagedSteps = 2;  // a step can be laid out while the one before is read

// Blocks of the KV pool; 0 when not even one fits.
int64_t total_blocks(const kernels::KvLayout& layout, const ExecutorOptions& options);

WorkspaceSizes workspace_sizes(const model::ModelConfig& config, const model::Weights& weights,
                               const ExecutorOptions& options);

// Where the stages find their buffers inside `activations`, and `logits`; `kv` is left null.
StageBuffers place_buffers(const model::ModelConfig& config, const model::Weights& weights,
                           const ExecutorOptions& options, std::byte* activations);

}  // namespace tandem
