// Finds out what steps take, by running some: the batches of Algorithm 1 for the ladders, the
// longest contexts, a grid for the tables, random batches for everything else, and random batches
// that no model has seen to say how good the models are. Within a given time: what does not fit is
// left out, the widest gaps last. Some 25 batches, of 64 rows and more, are run however long they
// take, so on a slow machine measuring takes longer than asked.
//
// One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "latency/accuracy.h"
#include "latency/batch.h"
#include "latency/fit.h"

namespace tandem::latency {

struct ProfilerOptions {
  Nanos time{std::chrono::seconds(90)};  // for measuring, about
  int32_t ladder_points = 48;            // of dense stages; half as many of the last stage
  int32_t repeats = 3;                   // of each point
  int32_t random_batches = 240;          // to learn from
  int32_t held_out_batches = 100;        // to be judged by; each is run twice
  uint64_t seed = 1;
};

// What `serve` does when it has none: a rougher profile, soon.
ProfilerOptions short_profile();

// `share` of the time that has gone, 0 .. 1, and what is being measured.
using ProfileProgress = std::function<void(double share, std::string_view what)>;

struct HeldOut {
  Sample sample;
  double again = 0;  // nanoseconds of the same batch, a second time
};

struct Measured {
  ModularCosts modular;
  RegressionCosts regression;
  TableCosts table;
  // On held-out batches: each model, and the same batch run twice.
  Accuracy modular_accuracy;
  Accuracy regression_accuracy;
  Accuracy table_accuracy;
  Accuracy repeatability;
  int64_t batches = 0;    // run in all
  int32_t most_rows = 0;  // that were measured; beyond, the ladder goes on as it ended
  BatchLimits limits;     // of the server that was measured
  std::vector<HeldOut> held_out;
};

// `clock` is the one that `meter`'s time passes on. `progress` may be empty.
Result<Measured> measure_steps(BatchMeter& meter, const ModelFacts& facts,
                               const ProfilerOptions& options, const Clock& clock,
                               const ProfileProgress& progress);

}  // namespace tandem::latency
