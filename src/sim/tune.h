// The setting of a policy with which best effort costs latency-sensitive requests no more than an
// operator allows (HyGen 4.2), and which serves the most best effort. Knows nothing of how a run is
// made. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/tune_metrics.h"

namespace tandem::sim {

struct TuneOptions {
  std::vector<TuneGoal> goals;  // at least one
  int32_t min = 1;              // settings, both ends included
  int32_t max = 1;
  double precision = 0.01;                   // of the largest setting that keeps the goals
  int32_t most_runs = 12;                    // to find that
  std::function<std::string(int32_t)> show;  // a setting, for messages
};

struct TunedSetting {
  int32_t setting = 0;
  std::vector<TuneRun> runs;  // one of each load
  bool kept = false;  // with every load every metric is within its tolerance, no more are lost

  [[nodiscard]] double offline_tokens_per_s() const;  // mean of the loads
};

struct Tuned {
  std::vector<TuneRun> online;                  // each load without best effort
  std::vector<std::vector<double>> allowed_ms;  // of each load, in the order of the goals
  std::vector<TunedSetting> tried;              // in the order of the runs
  TunedSetting best;
};

// The load whose metric is the nearest to its limit, or the farthest above it.
size_t nearest_load(const Tuned& tuned, const TunedSetting& setting, size_t goal);

// All loads with each of the settings, which may run side by side. Absent: it is too small to serve
// by.
using SettingRuns = std::optional<std::vector<TuneRun>>;
using RunSettings =
    std::function<Result<std::vector<SettingRuns>>(const std::vector<int32_t>& settings)>;

// `online`: each load without best effort; at least one.
//   1. The largest setting that keeps the goals is bisected. Metrics are taken to grow with the
//      setting, but for step budgets so small that prompts wait for a chunk.
//   2. A larger budget is not always more best effort: a step may end inside a tile of the dense
//      products. So smaller settings are tried, each nine tenths of the next, as long as one of
//      four serves seven tenths of the most.
//   3. Of the settings that keep the goals and come within 1 % of the most best effort, the
//      smallest is the best: it is the farthest from the tolerance. But no metric, goal or not, may
//      be 5 % longer with it than with the largest setting: where little best effort arrives, every
//      budget serves it, and the smallest would only make latency-sensitive prompts wait.
// An error if none that was tried keeps the goals, with the metrics of the best setting.
Result<Tuned> tune_setting(const TuneOptions& options, const std::vector<TuneRun>& online,
                           const RunSettings& run);

}  // namespace tandem::sim
