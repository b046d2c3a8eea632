// Where K and V of one token lie in the KV memory of a tier. Plain arithmetic; owns nothing. Any
// thread.
//
// Block-major: [block][layer][K|V][kv_head][...], so a tier change moves whole blocks. Inside one
// (block, layer, K or V, head):
//   fp32:  K [padded_head_dim][block_tokens]            V [block_tokens][padded_head_dim]
//   bf16:  K [padded_head_dim/2][block_tokens][2 dims]  V [block_tokens/2][padded_head_dim][2
//   tokens]
// K is dim-major so that one vector holds 16 tokens of a dimension and scores need no horizontal
// sums; the pairs are what matrix units take as they are, and what a vector unit splits with one
// shift and one mask. That is the arrangement of the host's pools; an accelerator's own may be
// another, which only it knows (device::KvMoveOp).
#pragma once

#include <cstdint>

#include "base/element_type.h"

namespace tandem::kernels {

inline constexpr int kHeadDimMultiple = 32;  // head dims are padded to this with zeros at load
inline constexpr int kMaxPaddedHeadDim = 512;
inline constexpr int kSplitTokens =
    256;  // attention is summed in splits of this many tokens, merged in order

// How the tokens of a block lie inside one head's K or V.
enum class KvArrangement : uint8_t {
  kHost,        // as above
  kTokenMajor,  // [block_tokens][padded_head_dim], of both types
};

struct KvLayout {
  ElementType type = ElementType::kBF16;  // kF32 or kBF16
  int32_t layers = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;         // as the model says; even
  int32_t padded_head_dim = 0;  // multiple of kHeadDimMultiple, at most kMaxPaddedHeadDim
  int32_t block_tokens = 32;    // a divisor of kSplitTokens; for kernels a multiple of 16
  KvArrangement arrangement = KvArrangement::kHost;

  [[nodiscard]] constexpr int64_t head_bytes() const {
    return int64_t{block_tokens} * padded_head_dim * element_bytes(type);
  }
  [[nodiscard]] constexpr int64_t block_bytes() const {
    return int64_t{layers} * 2 * kv_heads * head_bytes();
  }
  // Byte offset from the pool's start.
  [[nodiscard]] constexpr int64_t key_offset(int64_t block, int64_t layer, int64_t kv_head) const {
    return block * block_bytes() + ((layer * 2 + 0) * kv_heads + kv_head) * head_bytes();
  }
  [[nodiscard]] constexpr int64_t value_offset(int64_t block, int64_t layer,
                                               int64_t kv_head) const {
    return block * block_bytes() + ((layer * 2 + 1) * kv_heads + kv_head) * head_bytes();
  }
  // Element index inside a head's K or V for the token at `slot` (0 .. block_tokens-1).
  [[nodiscard]] constexpr int64_t key_element(int64_t slot, int64_t dim) const {
    if (arrangement == KvArrangement::kTokenMajor) {
      return slot * padded_head_dim + dim;
    }
    return type == ElementType::kF32 ? dim * block_tokens + slot
                                     : ((dim / 2) * block_tokens + slot) * 2 + dim % 2;
  }
  [[nodiscard]] constexpr int64_t value_element(int64_t slot, int64_t dim) const {
    return type == ElementType::kF32 || arrangement == KvArrangement::kTokenMajor
               ? slot * padded_head_dim + dim
               : ((slot / 2) * padded_head_dim + dim) * 2 + slot % 2;
  }

  friend bool operator==(const KvLayout&, const KvLayout&) = default;
};

}  // namespace tandem::kernels
