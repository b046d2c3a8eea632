// Kernels that treat rows one by one: embedding, norms, RoPE with the KV write, SiLU*mul. Arguments
// only; functions: kernels.h. fp32 arithmetic; a row's result depends on that row alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/element_type.h"
#include "kernels/gemm.h"
#include "kernels/kv_layout.h"

namespace tandem::kernels {

struct EmbedArgs {
  const int32_t* ids = nullptr;  // [rows], each < table.n
  int64_t rows = 0;
  PackedMatrix table;  // row = token: n = vocabulary, k = hidden (packed like any weight)
  float* y = nullptr;  // [rows, y_stride], columns past the logical hidden are zero
  int64_t y_stride = 0;
};

struct RmsNormArgs {
  const float* x = nullptr;  // [rows, x_stride]
  int64_t x_stride = 0;
  int64_t rows = 0;
  int64_t hidden = 0;             // logical width: the mean is over these
  const float* weight = nullptr;  // [hidden]
  float epsilon = 0.0F;
  void* y =
      nullptr;  // [rows, y_stride], type y_type; columns hidden .. y_stride-1 are written as zeros
  ElementType y_type = ElementType::kBF16;
  int64_t y_stride = 0;
};

// cos and sin of position * inverse_frequency, once per step.
struct RopeTableArgs {
  const int32_t* positions = nullptr;  // [rows]
  int64_t rows = 0;
  const double* inverse_frequency = nullptr;  // [head_dim / 2], RoPE scaling already applied
  int64_t half_dim = 0;                       // head_dim / 2
  float attention_factor = 1.0F;              // multiplies cos and sin
  float* cos = nullptr;                       // [rows, half_dim]
  float* sin = nullptr;                       // [rows, half_dim]
};

// Rotates q and k (pairs (i, i + head_dim/2)), writes q out and k, v into their KV slots. With
// q_norm and k_norm (both or none) every head of q and k first goes through an RMS norm of its own.
struct RopeWriteArgs {
  const float* qkv = nullptr;  // [rows, qkv_stride]: heads | kv_heads (k) | kv_heads (v), each
                               // padded_head_dim wide
  int64_t qkv_stride = 0;
  int64_t rows = 0;
  const float* cos = nullptr;  // [rows, head_dim / 2]
  const float* sin = nullptr;
  int32_t heads = 0;
  KvLayout layout;
  int32_t layer = 0;
  std::byte* kv = nullptr;          // the pool's start
  const int32_t* blocks = nullptr;  // [rows] block of the row's token
  const int32_t* slots = nullptr;   // [rows] slot inside that block
  float* q = nullptr;               // [rows, heads, padded_head_dim]; padding dims are zero
  const float* q_norm = nullptr;    // [head_dim] weights of the norm, or null
  const float* k_norm = nullptr;
  float norm_epsilon = 0.0F;
};

struct RowGatherArgs {
  const float* x = nullptr;  // [*, stride]
  int64_t stride = 0;
  const int32_t* rows = nullptr;  // [count] rows of x
  int64_t count = 0;
  float* y = nullptr;  // [count, stride]
};

}  // namespace tandem::kernels
