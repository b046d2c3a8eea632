// What the host tier's parts take: attention of offloaded tokens, and copies over the link. Linear,
// with coefficients that are not negative, so more is never cheaper. Plain data; any thread.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/clock.h"

namespace tandem::latency {

// alpha + beta x size, in nanoseconds; the size is bytes on a link, rows in a collective.
struct AlphaBeta {
  double alpha_nanos = 0;
  double beta_nanos = 0;
  [[nodiscard]] double nanos(double size) const {
    return size > 0 ? alpha_nanos + beta_nanos * size : 0;
  }
};

// Attention of one layer on the host's workers: a x context + h x rows + b, all workers together on
// these rows and nothing else.
struct HostAttention {
  double per_context_nanos = 0;  // a, for a token attended to
  double per_row_nanos = 0;      // h
  double fixed_nanos = 0;        // b: until the workers have begun and the result is back
};

// What each worker is at work of that, in the mean: less, because handing out and waiting are not
// in it. Both 0: not known.
struct HostBusy {
  double per_context_nanos = 0;
  double per_row_nanos = 0;
  [[nodiscard]] double nanos(int64_t rows, int64_t context) const {
    return per_row_nanos * static_cast<double>(rows) +
           per_context_nanos * static_cast<double>(context);
  }
};

// What one row carries over the link on its way to the host, and back. 0: not known.
struct HopBytes {
  double to_host = 0;
  double from_host = 0;
};

// What the engine's thread takes to have visitors along. It is a part of a step's time only where
// the accelerator has nothing queued meanwhile.
struct LaunchTimes {
  double per_group_nanos = 0;  // planning, binding and launching a group of stages
  double per_visit_nanos = 0;  // a visitor at a stage: on its way out, and back
  // The same as per_group, of one stage of one lane, which is a group of its own.
  double per_lane_stage_nanos = 0;
};

struct HostTimes {
  HostAttention attention;
  AlphaBeta to_host;
  AlphaBeta from_host;
  LaunchTimes launch;
  HostBusy busy;
  HopBytes hop;
  double correction = 1;  // of attention, as observed (corrected_host.h)

  // Attention of one layer for `rows` offloaded tokens that attend to `context` tokens in all.
  [[nodiscard]] Nanos attention_time(int64_t rows, int64_t context) const {
    return rows <= 0
               ? Nanos{0}
               : nanos(correction * (attention.fixed_nanos +
                                     attention.per_row_nanos * static_cast<double>(rows) +
                                     attention.per_context_nanos * static_cast<double>(context)));
  }

  // The way of `rows` tokens' rows to the host, and of their results back.
  [[nodiscard]] Nanos link_time(int64_t rows) const {
    const auto count = static_cast<double>(rows);
    return nanos(to_host.nanos(hop.to_host * count) + from_host.nanos(hop.from_host * count));
  }

 private:
  [[nodiscard]] static Nanos nanos(double value) { return Nanos{std::llround(value)}; }
};

}  // namespace tandem::latency
