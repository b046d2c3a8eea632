#include "sim/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace tandem::sim {
namespace {

constexpr double kStep = 0.9;        // ratio of a smaller setting to the setting before
constexpr size_t kTogether = 4;      // smaller settings that are run as one batch
constexpr size_t kMostSmaller = 40;  // smaller settings at most
// The search for smaller settings ends when a batch serves less than this share of the most.
constexpr double kWorthIt = 0.7;
constexpr double kAsMuch = 0.99;   // this share of the most best effort is as good as the most
constexpr double kAsShort = 1.05;  // a metric may be this much longer than with the largest setting

bool keeps(const TuneRun& run, const TuneRun& online, const std::vector<double>& allowed_ms) {
  return std::ranges::equal(run.metrics_ms, allowed_ms, std::less_equal()) &&
         run.online_lost <= online.online_lost;
}

class Search {
 public:
  Search(const TuneOptions& options, const std::vector<TuneRun>& online, const RunSettings& run)
      : options_(options), run_(run) {
    tuned_.online = online;
    for (const TuneRun& load : online) {
      std::vector<double>& allowed = tuned_.allowed_ms.emplace_back();
      for (size_t i = 0; i < options.goals.size(); ++i) {
        allowed.push_back(load.metrics_ms[i] * (1 + options.goals[i].tolerance));
      }
    }
  }

  // The largest setting that keeps the goals; 0: no setting does.
  Result<int32_t> bisect() {
    // `low` keeps the goals or is too small, `high` is more than the most.
    double low = options_.min;
    double high = options_.max;
    double next = high;
    int32_t largest = 0;
    for (int32_t runs = 0; runs < options_.most_runs; ++runs) {
      const auto setting = static_cast<int32_t>(std::lround(next));
      RETURN_IF_ERROR(try_settings({setting}));
      const TunedSetting* tried = found(setting);
      if (tried != nullptr && tried->kept) {
        largest = std::max(largest, setting);
      }
      const bool is_low = tried == nullptr || tried->kept || is_too_small(*tried);
      (is_low ? low : high) = next;
      if (high / low <= 1 + options_.precision) {
        break;
      }
      next = std::sqrt(low * high);
    }
    return largest;
  }

  Status look_below(int32_t largest) {
    ASSIGN_OR_RETURN(double at, below_the_plateau(largest));
    for (size_t count = 0; count < kMostSmaller; count += kTogether) {
      std::vector<int32_t> settings;
      for (size_t i = 0; i < kTogether; ++i) {
        at *= kStep;
        settings.push_back(std::max(options_.min, static_cast<int32_t>(std::lround(at))));
      }
      RETURN_IF_ERROR(try_settings(settings));
      double served = 0;
      for (const int32_t setting : settings) {
        const TunedSetting* tried = found(setting);
        served = tried == nullptr ? served : std::max(served, tried->offline_tokens_per_s());
      }
      if (served < kWorthIt * most_served() || settings.back() == options_.min) {
        break;
      }
    }
    const double best = best_kept(largest).setting;
    const double between = std::sqrt(kStep);
    return try_settings({std::max(options_.min, static_cast<int32_t>(std::lround(best * between))),
                         std::min(largest, static_cast<int32_t>(std::lround(best / between)))});
  }

  // `largest` keeps the goals. Without any best-effort tokens it is the best.
  [[nodiscard]] const TunedSetting& best_kept(int32_t largest) const {
    const double max_served = most_served();
    const TunedSetting* best = nullptr;
    for (const TunedSetting& tried : tuned_.tried) {
      if (!tried.kept || max_served <= 0 || tried.offline_tokens_per_s() < kAsMuch * max_served) {
        continue;
      }
      const bool is_better =
          best == nullptr || (is_as_short(tried, largest)
                                  ? !is_as_short(*best, largest) || tried.setting < best->setting
                                  : !is_as_short(*best, largest) && tried.setting > best->setting);
      best = is_better ? &tried : best;
    }
    return best == nullptr ? *found(largest) : *best;
  }

  // The most best-effort tokens/s of the settings that keep the goals.
  [[nodiscard]] double most_served() const {
    double served = 0;
    for (const TunedSetting& tried : tuned_.tried) {
      served = tried.kept ? std::max(served, tried.offline_tokens_per_s()) : served;
    }
    return served;
  }

  [[nodiscard]] Error nothing_kept() const {
    const auto over_limit = [this](const TunedSetting& tried) {
      double ratio = 0;
      for (size_t i = 0; i < options_.goals.size(); ++i) {
        const size_t load = nearest_load(tuned_, tried, i);
        ratio = std::max(ratio, tried.runs[load].metrics_ms[i] / tuned_.allowed_ms[load][i]);
      }
      return ratio;
    };
    const auto best = std::ranges::min_element(tuned_.tried, {}, over_limit);
    return invalid_argument(
        best == tuned_.tried.end()
            ? std::string("nothing that was tried is large enough to serve by")
            : fmt::format("none of the {} settings that were tried keeps the tolerance: the best, "
                          "{}, leads to {}; allow more, or give best effort less",
                          tuned_.tried.size(), options_.show(best->setting), described(*best)),
        "tolerance");
  }

  Tuned& tuned() { return tuned_; }

 private:
  // Whether no metric of any load is much longer than with the largest setting.
  [[nodiscard]] bool is_as_short(const TunedSetting& tried, int32_t largest) const {
    const std::vector<TuneRun>& with_largest = found(largest)->runs;
    for (size_t load = 0; load < tried.runs.size(); ++load) {
      const std::vector<double>& metrics = tried.runs[load].all_ms;
      for (size_t i = 0; i < metrics.size(); ++i) {
        if (metrics[i] > kAsShort * with_largest[load].all_ms[i]) {
          return false;
        }
      }
    }
    return true;
  }

  Status try_settings(const std::vector<int32_t>& settings) {
    std::vector<int32_t> fresh;
    for (const int32_t setting : settings) {
      if (found(setting) == nullptr && std::ranges::find(fresh, setting) == fresh.end()) {
        fresh.push_back(setting);
      }
    }
    ASSIGN_OR_RETURN(std::vector<SettingRuns> came, run_(fresh));
    for (size_t i = 0; i < fresh.size(); ++i) {
      if (!came[i].has_value()) {
        continue;
      }
      TunedSetting tried{.setting = fresh[i], .runs = *std::move(came[i]), .kept = true};
      for (size_t load = 0; load < tried.runs.size(); ++load) {
        tried.kept =
            tried.kept && keeps(tried.runs[load], tuned_.online[load], tuned_.allowed_ms[load]);
      }
      tuned_.tried.push_back(std::move(tried));
    }
    return {};
  }

  [[nodiscard]] const TunedSetting* found(int32_t setting) const {
    const auto at = std::ranges::find(tuned_.tried, setting, &TunedSetting::setting);
    return at == tuned_.tried.end() ? nullptr : &*at;
  }

  // The metrics of smaller settings are better, down to where a step has no room for the chunk of a
  // prompt: from there on prompts wait. Worse than with the next larger setting: it is too small.
  [[nodiscard]] bool is_too_small(const TunedSetting& tried) const {
    constexpr double kNoise = 1.02;
    const TunedSetting* larger = nullptr;
    for (const TunedSetting& other : tuned_.tried) {
      if (other.setting > tried.setting && (larger == nullptr || other.setting < larger->setting)) {
        larger = &other;
      }
    }
    for (size_t load = 0; larger != nullptr && load < tried.runs.size(); ++load) {
      const TuneRun& own = tried.runs[load];
      const TuneRun& next = larger->runs[load];
      if (own.online_lost > next.online_lost) {
        return true;
      }
      for (size_t i = 0; i < own.metrics_ms.size(); ++i) {
        if (own.metrics_ms[i] > tuned_.allowed_ms[load][i] &&
            own.metrics_ms[i] > kNoise * next.metrics_ms[i]) {
          return true;
        }
      }
    }
    return false;
  }

  // Settings longer than the fullest step all lead to the same run. Halves `largest` while the run
  // stays the same; the last setting that has this run.
  Result<double> below_the_plateau(int32_t largest) {
    double at = largest;
    while (at / 2 >= options_.min) {
      const auto half = static_cast<int32_t>(std::lround(at / 2));
      RETURN_IF_ERROR(try_settings({half}));
      const TunedSetting* tried = found(half);
      if (tried == nullptr || tried->runs != found(largest)->runs) {
        break;
      }
      at = half;
    }
    return at;
  }

  // Text of the metrics. Each is taken from the load with its largest ratio to the limit.
  [[nodiscard]] std::string described(const TunedSetting& tried) const {
    std::string text;
    int64_t lost = 0;
    for (size_t i = 0; i < options_.goals.size(); ++i) {
      const size_t load = nearest_load(tuned_, tried, i);
      text += fmt::format("{}{} of {:.2f} ms (allowed: {:.2f})", i == 0 ? "" : ", ",
                          tune_metric_name(options_.goals[i].metric),
                          tried.runs[load].metrics_ms[i], tuned_.allowed_ms[load][i]);
    }
    for (size_t load = 0; load < tried.runs.size(); ++load) {
      lost += std::max<int64_t>(tried.runs[load].online_lost - tuned_.online[load].online_lost, 0);
    }
    return lost == 0 ? text
                     : fmt::format("{}; {} more latency-sensitive requests were lost", text, lost);
  }

  const TuneOptions& options_;
  const RunSettings& run_;
  Tuned tuned_;
};

}  // namespace

double TunedSetting::offline_tokens_per_s() const {
  double sum = 0;
  for (const TuneRun& run : runs) {
    sum += run.offline_tokens_per_s;
  }
  return runs.empty() ? 0 : sum / static_cast<double>(runs.size());
}

size_t nearest_load(const Tuned& tuned, const TunedSetting& setting, size_t goal) {
  size_t nearest = 0;
  double max_ratio = 0;
  for (size_t load = 0; load < setting.runs.size(); ++load) {
    const double ratio = setting.runs[load].metrics_ms[goal] / tuned.allowed_ms[load][goal];
    if (ratio > max_ratio) {
      nearest = load;
      max_ratio = ratio;
    }
  }
  return nearest;
}

Result<Tuned> tune_setting(const TuneOptions& options, const std::vector<TuneRun>& online,
                           const RunSettings& run) {
  CHECK(!options.goals.empty() && !online.empty() && options.min > 0 && options.min < options.max &&
            options.precision > 0 && options.most_runs > 0,
        "{} goals, {} loads, settings of {} to {}", options.goals.size(), online.size(),
        options.min, options.max);
  Search search(options, online, run);
  ASSIGN_OR_RETURN(const int32_t largest, search.bisect());
  if (largest == 0) {
    return search.nothing_kept();
  }
  if (search.most_served() > 0) {
    RETURN_IF_ERROR(search.look_below(largest));
  }
  search.tuned().best = search.best_kept(largest);
  return std::move(search.tuned());
}

}  // namespace tandem::sim
