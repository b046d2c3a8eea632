// Puts the elements of one token and kv head into their places of a KV pool: the only code that
// writes K and V, whoever computed them. The places are those of kv_layout.h. Threads: tokens of
// one block may be written at the same time by different threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/element_type.h"
#include "kernels/kv_layout.h"

namespace tandem::kernels {

// A token of one layer.
struct KvPlace {
  std::byte* kv = nullptr;  // the pool's start
  int64_t layer = 0;
  int64_t block = 0;
  int64_t slot = 0;  // in the block
};

// elements [padded_head_dim] of the layout's type.
inline void store_key(const KvLayout& layout, const KvPlace& place, int64_t kv_head,
                      const void* elements) {
  std::byte* head = place.kv + layout.key_offset(place.block, place.layer, kv_head);
  if (layout.type == ElementType::kF32) {
    auto* to = reinterpret_cast<float*>(head) + place.slot;
    const auto* from = static_cast<const float*>(elements);
    for (int64_t dim = 0; dim < layout.padded_head_dim; ++dim) {
      to[dim * layout.block_tokens] = from[dim];
    }
    return;
  }
  auto* to = reinterpret_cast<BFloat16*>(head) + place.slot * 2;
  const auto* from = static_cast<const BFloat16*>(elements);
  for (int64_t dim = 0; dim < layout.padded_head_dim; dim += 2) {  // a pair is the token's own
    std::memcpy(to + dim * layout.block_tokens, from + dim, 2 * sizeof(BFloat16));
  }
}

inline void store_value(const KvLayout& layout, const KvPlace& place, int64_t kv_head,
                        const void* elements) {
  std::byte* head = place.kv + layout.value_offset(place.block, place.layer, kv_head);
  const int64_t width = layout.padded_head_dim;
  if (layout.type == ElementType::kF32) {
    std::memcpy(reinterpret_cast<float*>(head) + place.slot * width, elements,
                static_cast<size_t>(width) * sizeof(float));
    return;
  }
  // Elements go one by one: the other half of a pair belongs to another token, which another thread
  // may be writing.
  auto* to = reinterpret_cast<BFloat16*>(head) + place.slot / 2 * width * 2 + place.slot % 2;
  const auto* from = static_cast<const BFloat16*>(elements);
  for (int64_t dim = 0; dim < width; ++dim) {
    to[dim * 2] = from[dim];
  }
}

}  // namespace tandem::kernels
