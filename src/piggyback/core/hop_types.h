// The plain data of hops: limits, names, and the three records of a hop: `Visit` (the row of a step
// that begins it), `HopTask` (its attention on the host) and `HopAnswer`; copy runs. Rows and
// stages are counted from 0; a *hop row* index names the outbox row, the results row and the
// returns row of a hop alike. Any thread.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/ids.h"

namespace tandem::piggyback {

inline constexpr int32_t kMaxAttempts = 32;

// Sub-batches of a step that may wait for their visitors (execution of lanes, NEO 3.1). Each
// token is in one of them from its entry to its last visit, and may change it meanwhile; where
// steps have no lanes it does not matter.
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

// One row of a stage's tail: ends one hop of its sequence and begins the next.
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

// One attempt at one hop: attention of one row and layer on the host. A retry reads and writes the
// same hop row: attention is pure and the append idempotent, so every attempt writes the same bits.
struct HopTask {
  HopId hop;
  SequenceId sequence{};
  int32_t layer = 0;
  int32_t position = 0;  // of the token, counted from 0
  int32_t hop_row = 0;   // of the routed row that is read and the result that is written
  int32_t attempt = 0;   // 0 first, then retries
  Nanos handed_out{0};   // by the hop core
  // The sequence's host blocks, which cover position + 1 tokens. The hop core knows no memory and
  // leaves it null; its owner sets it before it hands the task to a host.
  const int32_t* block_table = nullptr;
};

// An attempt's answer.
struct HopAnswer {
  HopId hop;
  int32_t attempt = 0;
  bool failed = false;  // the result row may hold anything
  int32_t worker = -1;  // that answered; -1: the task was withdrawn before a worker began it
  Nanos began{0};       // of the host's clock; both zero if no worker began it
  Nanos ended{0};
  int64_t bytes = 0;  // of K and V read
};

}  // namespace tandem::piggyback
