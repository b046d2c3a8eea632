// Where a node's memory goes, computed before anything is allocated: weights, the
// executor's workspaces, and what is left for KV. Printed at start and enforced by the sizes handed
// down. Pure arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/cpu/host_formats.h"
#include "exec/forward_executor.h"
#include "model/config.h"
#include "model/weight_formats.h"
#include "node/memory_flags.h"

namespace tandem {

struct MemoryPlanInput {
  model::WeightFormats format;                               // of the weights
  const device::Formats* formats = &device::host_formats();  // of the device
  ExecutorOptions executor;                                  // kv_bytes is the plan's result
  int32_t max_running = 256;
  int32_t max_model_len = 0;  // 0: as long as the model and the memory allow
  int64_t memory_bytes = 0;   // that all of it may use
  // The host tier. Its KV blocks have the accelerator's layout.
  int64_t host_memory_bytes = 0;    // that it may use; 0: there is one tier
  int32_t offloaded_sequences = 0;  // at a time
  MemoryFlags flags;                // by which both memories are given
};

struct HostMemoryPlan {
  std::vector<MemoryPlanRow> rows;  // in print order, KV last; empty: there is one tier
  int64_t kv_blocks = 0;
  int64_t kv_bytes = 0;
  int64_t block_bytes = 0;
  int32_t offloaded_sequences = 0;
  int64_t total_bytes = 0;
  int64_t memory_bytes = 0;
};

struct MemoryPlan {
  std::vector<MemoryPlanRow> rows;  // weights, workspaces, tier rows, KV; in print order
  ExecutorOptions executor;         // with kv_bytes
  int32_t block_tokens = 0;
  int64_t kv_blocks = 0;
  int64_t kv_tokens = 0;
  int32_t max_model_len = 0;
  int64_t total_bytes = 0;
  int64_t memory_bytes = 0;
  HostMemoryPlan host;
};

// An error says what does not fit and by how much, and which flag to change.
Result<MemoryPlan> plan_memory(const model::ModelConfig& config, const MemoryPlanInput& input);

// An upper bound of the host memory that a plan uses, whatever `input.host_memory_bytes` is: KV of
// all offloaded sequences, and kMaxHostBufferBytes. Needs no device.
inline constexpr int64_t kMaxHostBufferBytes = int64_t{256} << 20;
int64_t useful_host_bytes(const model::ModelConfig& config, const MemoryPlanInput& input);

// A table for people, a row per line; on two tiers one for each, under its name.
std::string format_plan(const MemoryPlan& plan);

// How many of the longest sequences the host holds, and what it would take to hold as many as may
// be offloaded at a time. Empty where there is one tier.
std::string host_advice(const MemoryPlan& plan);

}  // namespace tandem
