#include "sim/tune_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "loadgen/statistics.h"
#include "request/slo.h"

namespace tandem::sim {
namespace {

struct NamedMetric {
  std::string_view name;
  TuneMetric metric;
};
constexpr std::array kMetrics = {
    NamedMetric{"mean_tbt", TuneMetric::kMeanTbt}, NamedMetric{"p99_tbt", TuneMetric::kP99Tbt},
    NamedMetric{"mean_ttft", TuneMetric::kMeanTtft}, NamedMetric{"p99_ttft", TuneMetric::kP99Ttft}};

bool is_offline(const loadgen::Load& load, int32_t group) {
  const Result<ServiceClass> named =
      parse_service_class(load.groups[static_cast<size_t>(group)].service_tier);
  return named.ok() && *named == ServiceClass::kBestEffort;
}

// Of latency-sensitive requests that were answered.
struct Samples {
  std::vector<double> tbt_ms;
  std::vector<double> ttft_ms;
};

void count(const loadgen::RequestRecord& record, Samples& samples) {
  const std::vector<Nanos>& times = record.chunk_times;
  samples.ttft_ms.push_back(to_millis(record.ttft()));
  for (size_t i = 1; i < times.size(); ++i) {
    samples.tbt_ms.push_back(to_millis(times[i] - times[i - 1]));
  }
}

Result<double> value_of(TuneMetric metric, const Samples& samples) {
  const bool is_tbt = metric == TuneMetric::kMeanTbt || metric == TuneMetric::kP99Tbt;
  const loadgen::Distribution found =
      loadgen::distribution_of(is_tbt ? samples.tbt_ms : samples.ttft_ms);
  if (found.count() == 0) {
    return invalid_argument(
        fmt::format("{} cannot be measured: no latency-sensitive request was answered{}; give the "
                    "load some, and time to end",
                    tune_metric_name(metric), is_tbt ? " with two tokens" : ""),
        "metric");
  }
  const bool is_mean = metric == TuneMetric::kMeanTbt || metric == TuneMetric::kMeanTtft;
  return is_mean ? found.mean : found.at(99);
}

}  // namespace

std::string_view tune_metric_name(TuneMetric metric) {
  return std::ranges::find(kMetrics, metric, &NamedMetric::metric)->name;
}

Result<TuneMetric> parse_tune_metric(std::string_view name) {
  const auto found = std::ranges::find(kMetrics, name, &NamedMetric::name);
  if (found == kMetrics.end()) {
    return invalid_argument(
        fmt::format("unknown metric '{}' (known: mean_tbt, p99_tbt, mean_ttft, p99_ttft)", name),
        "metric");
  }
  return found->metric;
}

loadgen::Load online_part(const loadgen::Load& load) {
  loadgen::Load online = load;
  std::erase_if(online.requests, [&load](const loadgen::LoadRequest& request) {
    return is_offline(load, request.group);
  });
  return online;
}

Result<TuneRun> measure_run(const loadgen::Load& load,
                            const std::vector<loadgen::RequestRecord>& records, Nanos duration,
                            const std::vector<TuneGoal>& goals) {
  TuneRun run;
  Samples samples;
  int64_t offline_tokens = 0;
  for (const loadgen::RequestRecord& record : records) {
    const bool offline = is_offline(load, record.group);
    if (record.outcome != loadgen::Outcome::kDone || record.chunk_times.empty()) {
      run.online_lost += offline ? 0 : 1;
      continue;
    }
    if (offline) {
      offline_tokens += record.output_tokens();
    } else {
      count(record, samples);
    }
  }
  run.offline_tokens_per_s =
      duration > Nanos{0} ? static_cast<double>(offline_tokens) / to_seconds(duration) : 0;
  for (const TuneGoal& goal : goals) {
    ASSIGN_OR_RETURN(const double value, value_of(goal.metric, samples));
    run.metrics_ms.push_back(value);
  }
  for (const TuneMetric metric :
       {TuneMetric::kMeanTbt, TuneMetric::kP99Tbt, TuneMetric::kMeanTtft, TuneMetric::kP99Ttft}) {
    const Result<double> value = value_of(metric, samples);
    run.all_ms.push_back(value.ok() ? *value : 0);
  }
  return run;
}

}  // namespace tandem::sim
