// The sizes of everything an executor allocates beside weights and KV, computed once: the memory
// plan prints them and the executor allocates them, so the two cannot differ. Plain arithmetic.
#pragma once

#include <cstdint>
#include <vector>

#include "device/device.h"
#include "exec/forward/stages.h"
#include "exec/forward_executor.h"
#include "exec/group_queue.h"
#include "kernels/kv_layout.h"
#include "model/config.h"
#include "model/weights.h"
#include "piggyback/core/hop_types.h"
#include "piggyback/workers/attention_workers.h"

namespace tandem {

// Byte sizes of the pieces, each its own allocation.
struct WorkspaceSizes {
  int64_t activations = 0;     // device
  int64_t logits = 0;          // device
  int64_t staging = 0;         // one step's input; four times: two steps, host and device
  int64_t partials = 0;        // device; of attention
  int64_t device_results = 0;  // device
  int64_t host_results = 0;    // pinned
  int64_t host_scores = 0;     // pinned; of prompt tokens
};

inline constexpr int kStagedSteps = 2;  // a step can be laid out while the one before is read

// Inputs of groups of stages: one for each that may be on its way, and the one being laid out.
inline constexpr int kStagedGroups = static_cast<int>(GroupQueue::kMaxGroups) + 1;

// A step's visitors are sampled once in each lane.
inline constexpr int kStagedSamples = piggyback::kLanes;

// Sizes of the second tier's memory. Each is one allocation, except the two row sizes. All 0 where
// there is one tier.
struct HostTierSizes {
  int64_t routed_row = 0;      // a row of ring and outbox
  int64_t attended_row = 0;    // a row of returns and results
  int64_t ring = 0;            // device
  int64_t returns = 0;         // device
  int64_t residual_store = 0;  // device
  int64_t staging_layers = 0;  // device; 0: no prompt goes straight to the host
  int64_t group_staging = 0;   // one group's input; kStagedGroups times on either side
  int64_t sample_staging = 0;  // visitors' samples; kStagedSamples times on either side
  int64_t outbox = 0;          // pinned
  int64_t results = 0;         // pinned
  int64_t partials = 0;        // pinned; of attention
  int64_t kv = 0;              // pinned
};
HostTierSizes host_tier_sizes(const model::ModelConfig& config, const model::Weights& weights,
                              const ExecutorOptions& options);
piggyback::HopLimits hop_limits(const model::ModelConfig& config, const ExecutorOptions& options);
// While memory is planned the host's pool may be larger than it will be.
inline bool plans_host_tier(const ExecutorOptions& options) { return options.host.sequences > 0; }
inline bool has_host_tier(const ExecutorOptions& options) { return options.host.kv_bytes > 0; }

// Tokens of the longest sequence: of the options, as far as the pool holds one so long.
int32_t longest_context(const model::ModelConfig& config, const ExecutorOptions& options);
// Where the host's workers keep partial results.
piggyback::PartialRooms partial_rooms(const model::ModelConfig& config,
                                      const ExecutorOptions& options);

// Blocks of a staging layer; 0: there is none.
int32_t staging_blocks(const kernels::KvLayout& layout, const ExecutorOptions& options);

// Blocks of the KV pool; 0 when not even one fits.
int64_t total_blocks(const kernels::KvLayout& layout, const ExecutorOptions& options);

WorkspaceSizes workspace_sizes(const model::ModelConfig& config, const model::Weights& weights,
                               const ExecutorOptions& options);

// Where the stages find their buffers inside `activations`, and `logits`; `kv` is left null.
StageBuffers place_buffers(const model::ModelConfig& config, const model::Weights& weights,
                           const ExecutorOptions& options, std::byte* activations);

}  // namespace tandem
