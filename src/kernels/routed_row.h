// A token's q, k and v of one layer as one row that travels between the tiers: what rope_route
// writes, kv_append and the attention on the other side read. Plain arithmetic; owns nothing. Any
// thread. (OmniServe 3.2)
//
// q fp32 [heads, padded_head_dim] | k [kv_heads, padded_head_dim] of the KV type | v likewise;
// after norm and rotation, padding dims zero, each part 64-byte aligned when the row is.
#pragma once

#include <cstdint>

#include "base/element_type.h"
#include "kernels/gemm.h"
#include "kernels/kv_layout.h"

namespace tandem::kernels {

inline constexpr int64_t kRoutedAlignment = 64;

struct RoutedRow {
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t padded_head_dim = 0;
  ElementType type = ElementType::kBF16;  // of k and v: the KV's

  RoutedRow() = default;
  constexpr RoutedRow(const KvLayout& layout, int32_t query_heads)
      : heads(query_heads),
        kv_heads(layout.kv_heads),
        padded_head_dim(layout.padded_head_dim),
        type(layout.type) {}

  // Byte offsets from the row's start; q lies at 0.
  [[nodiscard]] constexpr int64_t key_offset() const {
    return round_up(int64_t{heads} * padded_head_dim * element_bytes(ElementType::kF32),
                    kRoutedAlignment);
  }
  [[nodiscard]] constexpr int64_t value_offset() const { return key_offset() + part_bytes(); }
  // Of a whole row: the distance from row to row.
  [[nodiscard]] constexpr int64_t bytes() const { return value_offset() + part_bytes(); }

 private:
  [[nodiscard]] constexpr int64_t part_bytes() const {
    return round_up(int64_t{kv_heads} * padded_head_dim * element_bytes(type), kRoutedAlignment);
  }
};

}  // namespace tandem::kernels
