// The plain data of hops: limits, names, visits, copy runs, tasks. Rows and stages are counted from
// 0; a *hop row* index names the outbox row, the results row and the returns row of a hop alike.
// Any thread.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/ids.h"

namespace tandem::piggyback {

inline constexpr int32_t kMaxAttempts = 32;

// Sub-batches of a step that may wait for their visitors (execution of lanes, NEO 3.1). A token
// keeps its lane from its entry to its last visit; where steps have no lanes it does not matter.
inline constexpr int32_t kLanes = 2;

struct HopLimits {
  int32_t slots = 0;       // offloaded sequences at a time, >= 1
  int32_t ring_rows = 0;   // on the way from the device, >= 1
  int32_t hop_rows = 0;    // >= 1; 2 x slots so that copies are long and nothing ever waits for one
  int32_t last_stage = 0;  // = layers, >= 1
  int32_t attempts = 3;    // tries of one hop before its sequence is given up, 1 .. kMaxAttempts
};

// Names one hop of one sequence for as long as the process lives (2^32 hops of a slot). `slot` is
// the sequence's row of the residual store for as long as it stays.
struct HopId {
  int32_t slot = -1;
  uint32_t generation = 0;
  bool operator==(const HopId&) const = default;
};

// One row of a stage's tail.
struct Visit {
  HopId hop;  // that begins with this visit; at the last stage of the visit alone
  SequenceId sequence{};
  TokenId token = 0;
  int32_t position = 0;
  int32_t return_row = -1;  // hop row that holds the attention result to consume; -1 at stage 0
  int32_t ring_row = -1;    // takes q, k, v; -1 at the last stage
  int32_t hop_row = -1;     // where they go on to; may be return_row; -1 at the last stage
};

// Consecutive rows, one copy from the ring to the outbox.
struct ExitRun {
  int32_t ring_row = 0;
  int32_t hop_row = 0;
  int32_t rows = 0;
  bool operator==(const ExitRun&) const = default;
};

// Consecutive hop rows, one copy from the results to the returns.
struct RowRun {
  int32_t begin = 0;
  int32_t rows = 0;
  bool operator==(const RowRun&) const = default;
};

// An attempt that has been given up for good, inside a kernel as far as anybody knows: it may still
// write the K and V of `position`.
struct LostAttempt {
  HopId hop;
  SequenceId sequence{};
  int32_t attempt = 0;
  int32_t position = 0;
};

// One row of attention for the host. A retry reads and writes the same hop row: attention is pure
// and the append idempotent, so whichever attempt writes, it writes the same bits.
struct HopTask {
  HopId hop;
  SequenceId sequence{};
  int32_t layer = 0;
  int32_t position = 0;
  int32_t hop_row = 0;
  int32_t attempt = 0;  // 0 first, then retries
  Nanos handed_out{0};
};

}  // namespace tandem::piggyback
