// What a run of a load comes to for `tandem tune`: metrics of latency-sensitive requests, and the
// output of best effort. Plain data. Threads: any.
#pragma once

#include <cstdint>
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
  double tolerance = 0.05;  // share by which it may be longer than without best effort; > 0
};

// "p99_tbt"; and back, with an error that names the known ones.
std::string_view tune_metric_name(TuneMetric metric);
Result<TuneMetric> parse_tune_metric(std::string_view name);

// What a run of the load came to.
struct TuneRun {
  std::vector<double> metrics_ms;   // in the order of the goals
  std::vector<double> all_ms;       // in the order of TuneMetric; 0: no samples
  double offline_tokens_per_s = 0;  // output of best effort
  int64_t online_lost = 0;          // latency-sensitive requests without a whole answer

  bool operator==(const TuneRun&) const = default;
};

// The load's latency-sensitive part.
loadgen::Load online_part(const loadgen::Load& load);
// Of the requests of `records`, which are in the load's order. An error, if no latency-sensitive
// one was answered with as many tokens as a metric needs.
Result<TuneRun> measure_run(const loadgen::Load& load,
                            const std::vector<loadgen::RequestRecord>& records, Nanos duration,
                            const std::vector<TuneGoal>& goals);

}  // namespace tandem::sim
