#include "sim/machine_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "request/slo.h"

namespace tandem::sim {
namespace {

using loadgen::Headline;
using loadgen::Load;
using Json = nlohmann::ordered_json;

bool is_best_effort(const loadgen::RequestGroup& group) {
  const Result<ServiceClass> named = parse_service_class(group.service_tier);
  return named.ok() && *named == ServiceClass::kBestEffort;
}

bool has_host(const MachineLog& log) { return log.host_blocks() > 0; }

Nanos time_of_mode(const MachineLog& log, std::string_view name) {
  const auto found = log.modes().find(name);
  return found == log.modes().end() ? Nanos{0} : found->second.time;
}

Nanos time_of_steps(const MachineLog& log) {
  Nanos sum{0};
  for (const auto& [name, mode] : log.modes()) {
    sum += mode.time;
  }
  return sum;
}

double over(Nanos part, Nanos whole) {
  return whole > Nanos{0} ? to_seconds(part) / to_seconds(whole) : 0;
}

std::string in_words(std::string_view name) {
  std::string words(name);
  std::ranges::replace(words, '_', ' ');
  return words;
}

// "a 70 %, b 30 %": from the largest share on, without those that round to nothing.
std::string shares_text(std::vector<std::pair<std::string, double>> shares) {
  std::ranges::stable_sort(shares,
                           [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [name, share] : shares) {
    if (share >= 0.0005) {
      text += fmt::format("{}{} {:.1f} %", text.empty() ? "" : ", ", name, share * 100);
    }
  }
  return text.empty() ? "-" : text;
}

constexpr double kNear = 0.08;  // of a step's time: its prediction was good

// Both sides of the inequality in the mean, and the share of steps in which it held.
struct WeighedMeans {
  double rate_ratio = 0;
  double bound = 0;
  double held = 0;
};

std::optional<WeighedMeans> weighed_means(const MachineLog& log) {
  const WeighedSteps& weighed = log.weighed();
  if (weighed.steps == 0) {
    return std::nullopt;
  }
  const auto steps = static_cast<double>(weighed.steps);
  return WeighedMeans{.rate_ratio = weighed.rate_ratio / steps,
                      .bound = weighed.bound / steps,
                      .held = static_cast<double>(weighed.held) / steps};
}

}  // namespace

std::optional<BestEffortRates> best_effort_rates(const Load& load, const loadgen::RunResult& run,
                                                 std::optional<int32_t> engine) {
  const auto counts = [&](const loadgen::RequestRecord& record) {
    return is_best_effort(load.groups[static_cast<size_t>(record.group)]) &&
           record.model == engine.value_or(record.model);
  };
  const bool has_some = engine.has_value() ? std::ranges::any_of(run.records, counts)
                                           : std::ranges::any_of(load.groups, is_best_effort);
  if (!has_some) {
    return std::nullopt;
  }
  int64_t prompts = 0;
  int64_t outputs = 0;
  for (const loadgen::RequestRecord& record : run.records) {
    if (counts(record) && !record.chunk_times.empty()) {
      prompts += record.planned_input_tokens;
      outputs += std::ssize(record.chunk_times);
    }
  }
  const double seconds = to_seconds(run.duration);
  const auto rate = [seconds](int64_t tokens) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  };
  return BestEffortRates{.prompt_tokens_per_s = rate(prompts),
                         .output_tokens_per_s = rate(outputs)};
}

double share_of(const MachineLog& log, Nanos time) { return over(time, log.duration()); }

std::optional<double> step_time_error(const MachineLog& log) {
  Nanos predicted{0};
  Nanos error{0};
  for (const auto& [name, kind] : log.kinds()) {
    predicted += kind.predicted;
    error += kind.error;
  }
  return predicted > Nanos{0} ? std::optional(over(error, predicted)) : std::nullopt;
}

Json machine_json(const MachineLog& log, const std::optional<BestEffortRates>& best_effort) {
  Json json;
  const BusyTimes& busy = log.busy();
  json["busy"]["accelerator"] = share_of(log, busy.accelerator);
  if (has_host(log)) {
    json["busy"]["host"] = share_of(log, busy.host);
    json["busy"]["accelerator_idle_while_host_works"] = share_of(log, busy.host - busy.both);
    json["busy"]["host_idle_while_accelerator_works"] = share_of(log, busy.accelerator - busy.both);
    json["offloaded"] = {{"mean", log.mean_offloaded()}, {"max", log.max_offloaded()}};
    const HostChanges& changes = log.changes();
    json["mode_changes"] = changes.modes;
    json["lane_moves"] = changes.lane_moves;
    json["let_in"] = changes.let_in;
    json["straight_to_host"] = changes.straight_to_host;
    for (size_t i = 0; i < kLimitNames.size(); ++i) {
      json["limited_by"][kLimitNames[i]] = share_of(log, log.regimes()[i]);
    }
  }
  if (best_effort.has_value()) {
    json["best_effort"] = {{"prompt_tokens_per_s", best_effort->prompt_tokens_per_s},
                           {"output_tokens_per_s", best_effort->output_tokens_per_s}};
  }
  for (const auto& [name, kind] : log.kinds()) {
    json["steps_by_kind"][name] = {{"steps", kind.steps},
                                   {"time_s", to_seconds(kind.time)},
                                   {"prompt_tokens", kind.prompt_tokens},
                                   {"decode_tokens", kind.decode_tokens},
                                   {"predicted_s", to_seconds(kind.predicted)},
                                   {"prediction_error_s", to_seconds(kind.error)}};
  }
  if (const std::optional<WeighedMeans> weighed = weighed_means(log)) {
    json["inequality"] = {{"steps", log.weighed().steps},
                          {"rate_ratio", weighed->rate_ratio},
                          {"bound", weighed->bound},
                          {"held", weighed->held}};
  }
  for (const char* name : kModeNames) {
    const auto mode = log.modes().find(std::string_view(name));
    if (has_host(log) && mode != log.modes().end()) {
      json["steps_by_mode"][name] = {{"steps", mode->second.steps},
                                     {"time_s", to_seconds(mode->second.time)},
                                     {"share", over(mode->second.time, time_of_steps(log))}};
      if (!mode->second.errors.empty()) {
        json["steps_by_mode"][name]["median_prediction_error"] = mode->second.errors.median();
        json["steps_by_mode"][name]["predicted_within_8_percent"] =
            mode->second.errors.within(kNear);
      }
      if (!mode->second.idle.empty()) {
        json["steps_by_mode"][name]["median_accelerator_idle"] = mode->second.idle.median();
      }
    }
  }
  return json;
}

std::vector<Headline> machine_headlines(const MachineLog& log,
                                        const std::optional<BestEffortRates>& best_effort) {
  std::vector<Headline> headlines = {{"steps", static_cast<double>(log.steps())},
                                     {"step_time_error", step_time_error(log)}};
  if (best_effort.has_value()) {
    headlines.push_back({"best_effort_prompt_tokens_per_s", best_effort->prompt_tokens_per_s});
    headlines.push_back({"best_effort_output_tokens_per_s", best_effort->output_tokens_per_s});
  }
  if (!has_host(log)) {
    return headlines;
  }
  const BusyTimes& busy = log.busy();
  headlines.push_back({"offloaded_mean", log.mean_offloaded()});
  headlines.push_back({"host_busy", share_of(log, busy.host)});
  headlines.push_back({"accelerator_bubble", share_of(log, busy.host - busy.both)});
  headlines.push_back({"host_bubble", share_of(log, busy.accelerator - busy.both)});
  for (size_t i = 0; i < kLimitNames.size(); ++i) {
    headlines.push_back(
        {fmt::format("limited_by_{}", kLimitNames[i]), share_of(log, log.regimes()[i])});
  }
  for (const char* name : kModeNames) {
    headlines.push_back(
        {fmt::format("mode_{}", name), over(time_of_mode(log, name), time_of_steps(log))});
  }
  headlines.push_back({"mode_changes", static_cast<double>(log.changes().modes)});
  headlines.push_back({"lane_moves", static_cast<double>(log.changes().lane_moves)});
  headlines.push_back({"let_in", static_cast<double>(log.changes().let_in)});
  headlines.push_back({"straight_to_host", static_cast<double>(log.changes().straight_to_host)});
  if (const std::optional<WeighedMeans> weighed = weighed_means(log)) {
    headlines.push_back({"inequality_rate_ratio", weighed->rate_ratio});
    headlines.push_back({"inequality_bound", weighed->bound});
    headlines.push_back({"inequality_held", weighed->held});
  }
  return headlines;
}

std::string machine_text(const MachineLog& log, const std::optional<BestEffortRates>& best_effort) {
  std::string text;
  const auto add = [&text](std::string_view name, const std::string& what) {
    fmt::format_to(std::back_inserter(text), "{:<13} {}\n", name, what);
  };
  const BusyTimes& busy = log.busy();
  if (has_host(log)) {
    add("busy", fmt::format("accelerator {:.1f} %, host {:.1f} %; accelerator idle while the host "
                            "works {:.1f} %, host idle while the accelerator works {:.1f} %",
                            share_of(log, busy.accelerator) * 100, share_of(log, busy.host) * 100,
                            share_of(log, busy.host - busy.both) * 100,
                            share_of(log, busy.accelerator - busy.both) * 100));
  }
  if (best_effort.has_value()) {
    add("best effort",
        fmt::format("{:.0f} prompt tokens/s, {:.0f} output tokens/s",
                    best_effort->prompt_tokens_per_s, best_effort->output_tokens_per_s));
  }
  if (has_host(log)) {
    add("offloaded", fmt::format("{:.1f} sequences in the mean, at most {}", log.mean_offloaded(),
                                 log.max_offloaded()));
    std::vector<std::pair<std::string, double>> limits;
    for (size_t i = 0; i < kLimitNames.size(); ++i) {
      limits.emplace_back(in_words(kLimitNames[i]), share_of(log, log.regimes()[i]));
    }
    add("limited by", shares_text(limits));
    std::vector<std::pair<std::string, double>> modes;
    for (const char* name : kModeNames) {
      modes.emplace_back(name, over(time_of_mode(log, name), time_of_steps(log)));
    }
    add("time of steps", shares_text(modes));
    const HostChanges& changes = log.changes();
    if (changes.straight_to_host > 0) {
      add("prompts", fmt::format("{} straight to the host", changes.straight_to_host));
    }
    if (changes.modes + changes.lane_moves + changes.let_in > 0) {
      add("changes", fmt::format("{} of mode, {} of lane, {} tokens begun although held",
                                 changes.modes, changes.lane_moves, changes.let_in));
    }
  }
  if (const std::optional<WeighedMeans> weighed = weighed_means(log)) {
    add("inequality",
        fmt::format("the accelerator attends {:.1f} times as fast as the host, and lanes pay below "
                    "{:.1f} (means); in {:.1f} % of {} steps they did",
                    weighed->rate_ratio, weighed->bound, weighed->held * 100, log.weighed().steps));
  }
  if (const std::optional<double> error = step_time_error(log)) {
    add("predictions", fmt::format("of step times are {:.1f} % off in the mean", *error * 100));
  }
  return text;
}

}  // namespace tandem::sim
