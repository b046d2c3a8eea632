// What `tandem bench tiers` measures in a window of time, medians over windows, and the bounds that
// a window is compared with. Plain data and pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace tandem::bench {

// What one stretch of time showed.
struct TiersWindow {
  [[nodiscard]] double mean_step_seconds() const { return seconds / static_cast<double>(steps); }

  double seconds = 0;
  int64_t steps = 0;
  double middle_step = 0;       // number of the step in its middle, from the run's start
  double step_seconds = 0;      // median, from step to step
  double over_model = 0;        // median of a step's time over what the cost model charges for it
  double modelled_seconds = 0;  // mean of that charge
  double engine_seconds = 0;    // processor time of the engine's thread, per step
  double advance_seconds = 0;   // of that, what planning, binding, pumping and launching take
  double advances = 0;          // calls of the engine for a step: it is woken so often
  // Per second.
  double visits = 0;
  double hops = 0;
  double hop_bytes_out = 0;
  double hop_bytes_back = 0;
  // Of the host's workers: bytes of K and V over the time that they worked.
  double attended_bytes = 0;  // per hop
  double host_rate = 0;
  double host_busy = 0;  // of one worker's time
  double hops_in_flight = 0;
  double overrun_share = 0;
};

// Seconds of a step of residents alone in the middle of `window`. Contexts grow by a token in each
// step, so this time lies between the times of `before` and `after`, windows of residents alone.
double alone_seconds(const TiersWindow& window, const TiersWindow& before,
                     const TiersWindow& after);

TiersWindow medians(const std::vector<TiersWindow>& windows);

// Steps that a window of `length` may take, of `left` steps until a sequence ends: the window's
// part of `to_come`, the length of all windows until then. At least one.
int64_t steps_of_window(int64_t left, Nanos length, Nanos to_come);

// Best-effort tokens per second that each limit would allow alone (what bounds offloaded decode).
struct TiersBound {
  double sequences = 0;       // every one of them under way all the time
  double host_bandwidth = 0;  // the workers busy all the time, at the rate that they had
  double link = 0;
  [[nodiscard]] double least() const { return std::min({sequences, host_bandwidth, link}); }
  [[nodiscard]] const char* regime() const;
};

struct TiersSetup {
  int32_t layers = 0;
  int32_t offloaded = 0;  // sequences
  int32_t host_cores = 0;
  double link_bytes_per_second = 0;  // each way
};

// The bounds at what `live` measured of a step, a hop and the host's workers.
TiersBound bound_of(const TiersWindow& live, const TiersSetup& setup);

}  // namespace tandem::bench
