// How long an accelerator takes for an op: start values to pace by, not measurements of Tandem.
// Plain data and functions. Any thread. (execution.md 4)
//
// GEMM: t0 + max(weight bytes / rate of memory, waves(rows) x time of a tile): as long as all rows
// fit the tiles that the weights' stream hides, more rows cost nothing. Attention: prefill linear
// in (query, key) pairs, decode a x (sum of contexts) + h x rows + b. Everything else by bytes.
// Copies: alpha + bytes / rate of the link.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "device/device.h"

namespace tandem::device {

// Rates per second.
struct AcceleratorProfile {
  std::string_view name;
  double flops = 0;         // of dense products of 16-bit numbers, as published or measured
  double flops_share = 1;   // of it that a product reaches
  double memory_bytes = 0;  // as published or measured
  double memory_bytes_share = 1;
  double link_bytes = 0;  // each direction
  bool is_host = false;   // the cores and memory of a host
};

// a100, h100, h200, t4, a10, and the hosts xeon-6342 and xeon-8480; null for other names.
const AcceleratorProfile* find_profile(std::string_view name);
// "a100, h100, ...", for messages.
std::string profile_names();

// `ranks` such accelerators that share a model's products and attention (tensor parallelism): each
// reads and computes its part, and they add up their results twice a layer.
struct RankGroup {
  int32_t ranks = 1;
  Nanos latency{std::chrono::microseconds(10)};  // each sum over the ranks takes at least this
  double bytes = 300e9;                          // per second, of one rank's links
};

// Time of what runs on the accelerator itself: every op, and copies inside its memory. Reads the
// slices of an attention (in host memory, if it says where), so only when the op may run.
Nanos op_time(const AcceleratorProfile& profile, const Op& op, const RankGroup& group = {});
// Of that, how long the op's bytes take at the full rate of the memory.
Nanos op_memory_time(const AcceleratorProfile& profile, const Op& op, const RankGroup& group = {});

// How much an attention has to look at. Reads its slices, as op_time does.
struct AttentionLoad {
  double prefill_pairs = 0;   // of rows of slices of several rows, and the tokens that they see
  double decode_context = 0;  // tokens that the other slices' rows see
  double decode_rows = 0;
};
AttentionLoad attention_load(const AttentionBatch& batch);

// A link of `bytes_per_second` each way.
Nanos link_transfer_time(double bytes_per_second, int64_t bytes);
// Beside the transfer, for each copy; streams pay it beside each other.
inline constexpr Nanos kLinkLatency{1500};

// Rows that a product of `rows` rows takes as long as: the next step of the ladder of tiles.
int64_t ladder_rows(int64_t rows);

}  // namespace tandem::device
