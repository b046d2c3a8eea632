#include "sim/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/check.h"
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

bool keeps(const TuneRun& run, const std::vector<double>& allowed_ms) {
  return std::ranges::equal(run.metrics_ms, allowed_ms, std::less_equal());
}

// The metrics of smaller settings are better, down to where a step has no room for the chunk of a
// prompt: from there on prompts wait. Worse than with the next larger setting: it is too small.
bool is_too_small(const Tuned& tuned, const TunedSetting& tried) {
  constexpr double kNoise = 1.02;
  const TunedSetting* larger = nullptr;
  for (const TunedSetting& other : tuned.tried) {
    if (other.setting > tried.setting && (larger == nullptr || other.setting < larger->setting)) {
      larger = &other;
    }
  }
  if (larger != nullptr && tried.run.online_lost > larger->run.online_lost) {
    return true;
  }
  for (size_t i = 0; larger != nullptr && i < tuned.allowed_ms.size(); ++i) {
    const double metric = tried.run.metrics_ms[i];
    if (metric > tuned.allowed_ms[i] && metric > kNoise * larger->run.metrics_ms[i]) {
      return true;
    }
  }
  return false;
}

std::string described(const TuneOptions& options, const TunedSetting& tried,
                      const std::vector<double>& allowed_ms) {
  std::string text;
  for (size_t i = 0; i < options.goals.size(); ++i) {
    text += fmt::format("{}{} of {:.2f} ms (allowed: {:.2f})", i == 0 ? "" : ", ",
                        tune_metric_name(options.goals[i].metric), tried.run.metrics_ms[i],
                        allowed_ms[i]);
  }
  if (tried.run.online_lost > 0) {
    text += fmt::format("; {} latency-sensitive requests were lost", tried.run.online_lost);
  }
  return text;
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
  return run;
}

Result<Tuned> tune_setting(const TuneOptions& options, const TuneRun& online,
                           const RunWithSetting& run) {
  CHECK(!options.goals.empty() && options.goals.size() == online.metrics_ms.size() &&
            options.least > 0 && options.least < options.most && options.precision > 0 &&
            options.most_runs > 0,
        "{} goals, {} metrics, settings of {} to {}", options.goals.size(),
        online.metrics_ms.size(), options.least, options.most);
  Tuned tuned{.online = online, .allowed_ms = {}, .tried = {}, .best = {}};
  for (size_t i = 0; i < options.goals.size(); ++i) {
    tuned.allowed_ms.push_back(online.metrics_ms[i] * (1 + options.goals[i].tolerance));
  }
  // `low` keeps the goals or is too small, `high` is more than the most.
  double low = options.least;
  double high = options.most;
  double next = high;
  while (std::cmp_less(tuned.tried.size(), options.most_runs)) {
    TunedSetting tried{
        .setting = static_cast<int32_t>(std::lround(next)), .run = {}, .kept = false};
    ASSIGN_OR_RETURN(std::optional<TuneRun> came, run(tried.setting));
    bool is_low = !came.has_value();
    if (came.has_value()) {
      tried.run = *std::move(came);
      tried.kept =
          keeps(tried.run, tuned.allowed_ms) && tried.run.online_lost <= online.online_lost;
      is_low = tried.kept || is_too_small(tuned, tried);
      tuned.tried.push_back(tried);
    }
    if (tried.kept && tried.setting > tuned.best.setting) {
      tuned.best = tried;
    }
    (is_low ? low : high) = next;
    if (high / low <= 1 + options.precision) {
      break;
    }
    next = std::sqrt(low * high);
  }
  if (!tuned.best.kept) {
    const auto best = std::ranges::min_element(
        tuned.tried, {}, [](const TunedSetting& tried) { return tried.run.metrics_ms.front(); });
    return invalid_argument(
        best == tuned.tried.end()
            ? std::string("nothing that was tried is large enough to serve by")
            : fmt::format("none of the {} runs with best effort keeps the tolerance: the best, "
                          "with {}, leads to {}; allow more, or give best effort less",
                          tuned.tried.size(), options.show(best->setting),
                          described(options, *best, tuned.allowed_ms)),
        "tolerance");
  }
  return tuned;
}

}  // namespace tandem::sim
