// One row of attention for the host, and its answer. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "piggyback/core/hop_types.h"

namespace tandem::piggyback {

// What the pointers name stays valid and in place until the task's answer is taken.
struct AttentionTask {
  HopId hop;
  int32_t attempt = 0;
  int32_t layer = 0;
  int32_t position = 0;                  // of the token, counted from 0
  const int32_t* block_table = nullptr;  // host blocks; covers position + 1 tokens
  const std::byte* routed = nullptr;     // kernels::RoutedRow(layout, heads), 64-byte aligned
  void* out = nullptr;                   // [heads, padded_head_dim] of out_type, 64-byte aligned
};

struct AttentionDone {
  HopId hop;
  int32_t attempt = 0;
  bool failed = false;  // `out` may hold anything
  int32_t worker = -1;  // that answered; -1: withdrawn before any began
  Nanos began{0};       // of the steady clock; both zero when none began
  Nanos ended{0};
  int64_t bytes = 0;  // of K and V read
};

}  // namespace tandem::piggyback
