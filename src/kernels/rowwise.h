// Kernels that treat rows one by one: embedding, norms, RoPE with the KV write or with the way to
// the other tier and back. Arguments only; functions: kernels.h. fp32 arithmetic; a row's result
// depends on that row alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/element_type.h"
#include "kernels/gemm.h"
#include "kernels/kv_layout.h"
#include "kernels/routed_row.h"

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
  void* q = nullptr;  // [rows, heads, padded_head_dim], type q_type; padding dims are zero
  ElementType q_type = ElementType::kF32;  // kBF16, rounded to nearest even: not on CPUs
  const float* q_norm = nullptr;           // [head_dim] weights of the norm, or null
  const float* k_norm = nullptr;
  float norm_epsilon = 0.0F;

  friend bool operator==(const RopeWriteArgs&, const RopeWriteArgs&) = default;
};

// Sends rows whose attention is computed on the other tier on their way, right after the QKV
// product: q, k, v of row r, with the bits that RopeWrite gives, become the routed row ring_rows[r]
// of `ring`, and its residual waits in row residual_slots[r] of `residual_store`. All pointers
// begin at the first of these rows. Two rows must not name one ring row or slot.
struct RopeRouteArgs {
  const float* qkv = nullptr;  // [rows, qkv_stride] as RopeWriteArgs
  int64_t qkv_stride = 0;
  int64_t rows = 0;
  const float* cos = nullptr;  // [rows, head_dim / 2]
  const float* sin = nullptr;
  int32_t heads = 0;
  KvLayout layout;                // of both tiers; block_tokens and layers are not looked at
  const float* q_norm = nullptr;  // [head_dim] weights of the norm, or null; both or none
  const float* k_norm = nullptr;
  float norm_epsilon = 0.0F;
  std::byte* ring = nullptr;  // [*] rows of RoutedRow(layout, heads).bytes(), 64-byte aligned
  const int32_t* ring_rows = nullptr;  // [rows]
  const float* residual = nullptr;     // [rows, residual_stride]
  int64_t residual_stride = 0;
  int64_t residual_columns = 0;     // copied of each row, <= both strides
  float* residual_store = nullptr;  // [*, store_stride]
  int64_t store_stride = 0;
  const int32_t* residual_slots = nullptr;  // [rows]
};

// Brings such rows back in front of the out-projection: row return_rows[r] of `returns` to row r of
// `attended`, row residual_slots[r] of `residual_store` to row r of `residual`. Bits are copied.
// With `attended` or `residual` null that half is left out.
struct TailGatherArgs {
  int64_t rows = 0;
  const std::byte* returns = nullptr;     // [*] rows of attended_row_bytes
  int64_t attended_row_bytes = 0;         // copied of each row
  const int32_t* return_rows = nullptr;   // [rows]
  std::byte* attended = nullptr;          // first row
  int64_t attended_pitch_bytes = 0;       // from row to row
  const float* residual_store = nullptr;  // [*, store_stride]
  int64_t store_stride = 0;
  const int32_t* residual_slots = nullptr;  // [rows]
  float* residual = nullptr;                // [rows, residual_stride]
  int64_t residual_stride = 0;
  int64_t residual_columns = 0;  // copied of each row
};

// Writes k and v of one routed row where RopeWrite would have written that token's. Doing it again
// changes nothing.
struct KvAppendArgs {
  const std::byte* routed = nullptr;  // RoutedRow(layout, heads), 64-byte aligned
  int32_t heads = 0;                  // of q
  KvLayout layout;
  int32_t layer = 0;
  int32_t block = 0;
  int32_t slot = 0;         // of the token, in the block
  std::byte* kv = nullptr;  // the pool's start
};

struct RowGatherArgs {
  const float* x = nullptr;  // [*, stride]
  int64_t stride = 0;
  const int32_t* rows = nullptr;  // [count] rows of x
  int64_t count = 0;
  float* y = nullptr;  // [count, stride]
};

}  // namespace tandem::kernels
