// A model's weights in device memory, packed for the kernels. Made once by load_weights; read-only
// afterwards.
//
// Padding at load: heads are padded from head_dim to a multiple of 32, every other dimension at its
// end to a multiple of 32.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "device/device.h"
#include "kernels/gemm.h"
#include "model/config.h"

namespace tandem::model {

struct LayerWeights {
  const float* attention_norm = nullptr;  // [hidden]
  kernels::PackedMatrix
      qkv;  // n: (heads + 2 kv_heads) * padded_head_dim, order q | k | v; k: padded hidden
  const float* qkv_bias = nullptr;  // [qkv.n] padded like n, or null
  const float* q_norm = nullptr;    // [head_dim], of every head of q, or null
  const float* k_norm = nullptr;    // the same of k
  kernels::PackedMatrix output;     // n: padded hidden; k: heads * padded_head_dim
  const float* mlp_norm = nullptr;  // [hidden]
  kernels::PackedMatrix
      gate_up;  // n: panels of gate and up in turn, 2 x padded intermediate; k: padded hidden
  kernels::PackedMatrix down;  // n: padded hidden; k: padded intermediate
};

struct Weights {
  ElementType type = ElementType::kBF16;  // of every packed matrix
  int32_t padded_hidden = 0;
  int32_t padded_head_dim = 0;
  int32_t padded_intermediate = 0;
  int32_t padded_vocabulary = 0;
  kernels::PackedMatrix embedding;  // n: padded vocabulary, k: padded hidden
  std::vector<LayerWeights> layers;
  const float* final_norm = nullptr;                    // [hidden]
  kernels::PackedMatrix lm_head;                        // the embedding itself when tied
  std::vector<std::unique_ptr<device::Memory>> memory;  // owns all of it
  [[nodiscard]] int64_t bytes() const {
    int64_t sum = 0;
    for (const auto& piece : memory) {
      sum += piece->bytes();
    }
    return sum;
  }
};

struct LoadProgress {
  int64_t bytes_done = 0;
  int64_t bytes_total = 0;
};

struct LoadOptions {
  ElementType type = ElementType::kBF16;  // kF32 or kBF16
  std::function<void(const LoadProgress&)>
      on_progress;  // called now and then on the calling thread; may be empty
};

// Bytes of device memory that load_weights will take.
int64_t weight_bytes(const ModelConfig& config, ElementType type);

// The padded shapes without any data, for a device that does not look at it.
Weights hollow_weights(const ModelConfig& config, ElementType type);

// Maps the safetensors of `folder` (model.safetensors, or the shards of
// model.safetensors.index.json), checks every tensor's presence, shape, type and range before
// touching data, packs through the device and releases source pages shard by shard. Errors name the
// file and tensor. NaN or infinite weights are an error that names the tensor.
Result<Weights> load_weights(const std::filesystem::path& folder, const ModelConfig& config,
                             device::Device& device, const LoadOptions& options);

}  // namespace tandem::model
