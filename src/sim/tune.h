// The setting of a policy with which best effort costs latency-sensitive requests no more than an
// operator allows (HyGen 4.2): the load without best effort is run first, then the setting, such as
// a step budget, is bisected until the metrics of the whole load stay within their tolerances of
// it. More of it is more best effort. Knows nothing of how a run is made. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "loadgen/load.h"
#include "loadgen/record.h"

namespace tandem::sim {

// Of latency-sensitive requests; TBT: the time from each token to the next.
enum class TuneMetric : uint8_t { kMeanTbt, kP99Tbt, kMeanTtft, kP99Ttft };

struct TuneGoal {
  TuneMetric metric = TuneMetric::kP99Tbt;
  double tolerance = 0.05;  // so much longer than without best effort, as a share of that; > 0
};

// "p99_tbt"; and back, with an error that names the known ones.
std::string_view tune_metric_name(TuneMetric metric);
Result<TuneMetric> parse_tune_metric(std::string_view name);

// What a run of the load came to.
struct TuneRun {
  std::vector<double> metrics_ms;   // in the order of the goals
  double offline_tokens_per_s = 0;  // output of best effort
  int64_t online_lost = 0;          // latency-sensitive requests without a whole answer
};

// The load's latency-sensitive part.
loadgen::Load online_part(const loadgen::Load& load);
// Of the requests of `records`, which are in the load's order. An error, if no latency-sensitive
// one was answered with as many tokens as a metric needs.
Result<TuneRun> measure_run(const loadgen::Load& load,
                            const std::vector<loadgen::RequestRecord>& records, Nanos duration,
                            const std::vector<TuneGoal>& goals);

struct TuneOptions {
  std::vector<TuneGoal> goals;  // at least one
  int32_t least = 1;            // settings, both ends included
  int32_t most = 1;
  double precision = 0.01;                   // of the setting, as a share
  int32_t most_runs = 12;                    // with best effort
  std::function<std::string(int32_t)> show;  // a setting, for messages
};

struct TunedSetting {
  int32_t setting = 0;
  TuneRun run;
  bool kept = false;  // every metric is within its tolerance, and no more requests are lost
};

struct Tuned {
  TuneRun online;                   // without best effort
  std::vector<double> allowed_ms;   // in the order of the goals
  std::vector<TunedSetting> tried;  // in the order of the runs
  TunedSetting best;                // the largest that keeps all
};

// The whole load's run with a setting; absent: it is too small to serve by.
using RunWithSetting = std::function<Result<std::optional<TuneRun>>(int32_t setting)>;

// Metrics are taken to grow with the setting, but for step budgets so small that prompts wait for a
// chunk. An error if none that was tried keeps the goals, with what the best one came to.
Result<Tuned> tune_setting(const TuneOptions& options, const TuneRun& online,
                           const RunWithSetting& run);

}  // namespace tandem::sim
