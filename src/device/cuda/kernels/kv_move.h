// KV on its way between the tiers: the GPU keeps K and V of a head token by token, the host in the
// arrangement of its kernels. A kernel as in elements.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda/kernels/elements.h"
#include "device/ops.h"
#include "kernels/kv_layout.h"

namespace tandem::device::cuda {

// The layout of the GPU's own pool.
TANDEM_ANYWHERE constexpr kernels::KvLayout gpu_layout(kernels::KvLayout layout) {
  layout.arrangement = kernels::KvArrangement::kTokenMajor;
  return layout;
}

// An index is 16 bytes of the host's side, so that the link sees whole lines.
template <class Element>
struct MoveKv {
  const Element* source = nullptr;
  Element* target = nullptr;
  int64_t bytes = 0;
  kernels::KvLayout layout;  // the host's
  int64_t first_head = 0;
  bool to_host = false;

  static constexpr int64_t kElements = 16 / static_cast<int64_t>(sizeof(Element));
  struct alignas(16) Piece {
    Element elements[kElements];
  };

  // Where element `e` of a head of the host lies in the GPU's.
  [[nodiscard]] TANDEM_ANYWHERE int64_t on_gpu(int64_t e, bool is_key) const {
    const int64_t width = layout.padded_head_dim;
    const int64_t tokens = layout.block_tokens;
    if (sizeof(Element) == sizeof(float)) {
      return is_key ? e % tokens * width + e / tokens : e;
    }
    const int64_t pair = e / 2;
    return is_key ? pair % tokens * width + pair / tokens * 2 + e % 2
                  : (pair / width * 2 + e % 2) * width + pair % width;
  }

  [[nodiscard]] TANDEM_ANYWHERE int64_t count() const { return bytes / 16; }
  TANDEM_ANYWHERE void operator()(int64_t i) const {
    const int64_t head_elements = int64_t{layout.block_tokens} * layout.padded_head_dim;
    const int64_t head = i * kElements / head_elements;
    const int64_t first = i * kElements % head_elements;
    const bool is_key = (first_head + head) / layout.kv_heads % 2 == 0;
    const int64_t begin = head * head_elements;
    Piece piece;
    if (to_host) {
      for (int64_t e = 0; e < kElements; ++e) {
        piece.elements[e] = source[begin + on_gpu(first + e, is_key)];
      }
      *reinterpret_cast<Piece*>(target + begin + first) = piece;
    } else {
      piece = *reinterpret_cast<const Piece*>(source + begin + first);
      for (int64_t e = 0; e < kElements; ++e) {
        target[begin + on_gpu(first + e, is_key)] = piece.elements[e];
      }
    }
  }
};

}  // namespace tandem::device::cuda
