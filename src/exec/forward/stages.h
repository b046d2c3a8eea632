// A model's forward pass as ops on a device stream. The order of a layer's ops is written here and
// nowhere else.
//
// A model of L layers has L+1 dense stages with an attention between each two: stage 0 = embedding
// and pre-attention (norm, QKV, RoPE, KV write) of layer 0; stage s = post-attention
// (out-projection, residual, MLP) of layer s-1 and pre-attention of layer s; stage L =
// post-attention of layer L-1, final norm and LM head, of the sampled rows only. Only queues ops:
// nothing here computes or waits. Issuing thread of the stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/device.h"
#include "exec/batch_layout.h"
#include "exec/visitor_layout.h"
#include "kernels/kv_layout.h"
#include "model/config.h"
#include "model/weights.h"

namespace tandem {

// Elements from row to row of the operands of matrix products.
struct StageStrides {
  int64_t residual = 0;
  int64_t normed = 0;
  int64_t qkv = 0;
  int64_t attended = 0;
  int64_t projected = 0;
  int64_t activated = 0;
};
StageStrides stage_strides(const model::ModelConfig& config, const model::Weights& weights);

// Attention leaves results of another type than products read.
inline bool casts_attended(const model::Weights& weights) {
  return weights.numbers.attended != weights.numbers.activation;
}

// Device memory that the stages work in. Rows lie as StageStrides says; beside them stands what a
// row holds. R rows: max_batched_tokens; S: max_logit_rows; M: the larger of both.
struct StageBuffers {
  std::byte* residual = nullptr;          // [R, hidden], residual type
  std::byte* normed = nullptr;            // [M, hidden], activation type
  float* qkv = nullptr;                   // [R, qkv columns]
  std::byte* q = nullptr;                 // [R, heads * padded_head_dim], of query_type
  std::byte* attended = nullptr;          // [R, heads * padded_head_dim], attended type
  std::byte* projected = nullptr;         // [M, heads * padded_head_dim], activation type; only if
                                          // attention results have another one
  std::byte* activated = nullptr;         // [M, intermediate], activation type
  float* cos = nullptr;                   // [R, head_dim / 2]
  float* sin = nullptr;                   // [R, head_dim / 2]
  double* inverse_frequency = nullptr;    // [head_dim / 2]
  std::byte* sampled_residual = nullptr;  // [S, hidden], residual type
  std::byte* sampled_attended = nullptr;  // [S, heads * padded_head_dim], attended type
  float* logits = nullptr;                // [S, vocabulary]
  std::byte* kv = nullptr;                // the pool's start
  float* attention_workspace = nullptr;
  int64_t attention_workspace_floats = 0;
  // Two tiers only: the accelerator's ends of the hops' queues.
  std::byte* ring = nullptr;     // [ring rows] RoutedRow: q, k, v on their way to the host
  std::byte* returns = nullptr;  // [hop rows, heads * padded_head_dim], attended type: results
  std::byte* residual_store = nullptr;  // [slots, hidden], type and stride as residual
  // Only where prompts may go straight to the host: the KV of two layers, as KvLayout for a model
  // of two. A step's even layers write to the first one, its odd layers to the second.
  std::byte* staging_layers = nullptr;
};

inline constexpr int32_t kStagingLayers = 2;
// The layout of a model with that number of layers.
constexpr kernels::KvLayout staging_layout(kernels::KvLayout pool) {
  pool.layers = kStagingLayers;
  return pool;
}

// The ops of a step's residents that change in few fields from layer to layer: Stages::prepare
// makes them, once a step.
struct KvOps {
  device::Op write;
  std::vector<device::Op> attend;  // one for each different window of the model
};
struct ResidentOps {
  KvOps pooled;  // KV in the pool
  KvOps staged;  // KV in the staging layers
};

class Stages {
 public:
  // Everything must outlive the stages but `layout` and `buffers`, which are copied.
  Stages(const model::ModelConfig& config, const model::Weights& weights,
         const kernels::KvLayout& layout, const StageBuffers& buffers);

  // Before a step's first stage. Plans the residents' attention if the step `attends`.
  void prepare(device::Device& device, device::StreamId stream, const StepInputs& inputs,
               bool attends, ResidentOps& ops) const;
  // Stage `stage` of 0 .. layers - 1; attention(l) belongs between stage l and l+1. The visitors in
  // `tail` come from the returns and the residual store, and leave for the ring and the store. If
  // they are alone, the residents' rows stay as they are.
  void launch_stage(device::Device& device, device::StreamId stream, const StepInputs& inputs,
                    ResidentOps& ops, int32_t stage, const TailRows& tail = {}) const;
  void launch_attention(device::Device& device, device::StreamId stream, const StepInputs& inputs,
                        ResidentOps& ops, int32_t layer) const;
  // Stage `layers`. The visitors' logits lie behind the residents', first if they are alone.
  void launch_last_stage(device::Device& device, device::StreamId stream, const StepInputs& inputs,
                         const TailRows& tail = {}) const;

 private:
  // Where KV lies, and the first row and the first plan of attention over it.
  struct KvPlace {
    std::byte* kv = nullptr;
    kernels::KvLayout layout;
    int64_t first_row = 0;
    size_t first_plan = 0;
  };
  // The queue and the rows that ops are for.
  struct Target {
    device::Device& device;
    device::StreamId stream;
    int64_t rows = 0;
  };
  // What the out-projection reads.
  struct Projected {
    const std::byte* data = nullptr;
    int64_t stride = 0;
  };
  // A residual row for each row of attention results.
  struct Rows {
    std::byte* residual = nullptr;
    std::byte* attended = nullptr;
  };
  // Rows of tokens for the first stage, from row `first_row` of the buffers on.
  struct TokenRows {
    const int32_t* ids = nullptr;
    const int32_t* positions = nullptr;
    int64_t first_row = 0;
  };

  void prepare(const StepInputs& inputs, const SliceInputs& slices, const KvPlace& place,
               KvOps& ops) const;
  void embed(const Target& target, const TokenRows& tokens) const;
  void rope_table(const Target& target, const TokenRows& tokens) const;
  void pre_attention(const Target& target, const StepInputs& inputs, ResidentOps& ops,
                     int32_t layer, const TailRows& tail) const;
  void write_kv(const Target& target, KvOps& ops, int32_t layer, int32_t kv_layer) const;
  void route_tail(const Target& target, int64_t first_row, int32_t layer,
                  const TailRows& tail) const;
  void gather_tail(const Target& target, const Rows& rows, int64_t first_row,
                   const TailRows& tail) const;
  [[nodiscard]] Projected cast_attended(const Target& target, const std::byte* attended) const;
  // residual += x * w^T
  void add_product(const Target& target, const Projected& x, const device::WeightMatrix& w,
                   std::byte* residual) const;
  void post_attention(const Target& target, const Rows& rows, int32_t layer) const;
  [[nodiscard]] Rows gather_sampled(const Target& target, const StepInputs& inputs) const;
  void head(const Target& target, const std::byte* residual) const;
  void norm(const Target& target, const std::byte* residual, const float* weight) const;
  // From row to row of the residual.
  [[nodiscard]] int64_t residual_pitch() const {
    return strides_.residual * element_bytes(weights_.numbers.residual);
  }

  const model::ModelConfig& config_;
  const model::Weights& weights_;
  const kernels::KvLayout layout_;
  const StageBuffers buffers_;
  const StageStrides strides_;
  // The model's different windows; attention is planned once for each of them.
  std::vector<int32_t> windows_;
  std::vector<size_t> window_of_layer_;  // index into windows_
};

}  // namespace tandem
