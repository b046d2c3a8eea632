// What a simulated machine did in a run, as figures: JSON for result.json, lines for a terminal,
// numbers that runs are compared by. Threads: any.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "loadgen/generator.h"
#include "loadgen/headline.h"
#include "loadgen/load.h"
#include "sim/machine_log.h"

namespace tandem::sim {

// Of all requests of class flex, those included that had not ended: prompt tokens of requests that
// got their first token, and every output token.
struct BestEffortRates {
  double prompt_tokens_per_s = 0;
  double output_tokens_per_s = 0;
};
// Nullopt: the load has none of these requests. `engine`: of the requests that went to this
// engine, one of several.
std::optional<BestEffortRates> best_effort_rates(const loadgen::Load& load,
                                                 const loadgen::RunResult& run,
                                                 std::optional<int32_t> engine = std::nullopt);

// All need a log that has ended.
//
// Keys: `busy` (shares of the run), `steps_by_kind`, and with two tiers `offloaded`, `limited_by`
// (shares of the run), `steps_by_mode`, `mode_changes`, `lane_moves`, `let_in` and
// `straight_to_host` (HostChanges);
// `best_effort`; `inequality`, if a policy weighed lanes.
nlohmann::ordered_json machine_json(const MachineLog& log,
                                    const std::optional<BestEffortRates>& best_effort);
std::vector<loadgen::Headline> machine_headlines(const MachineLog& log,
                                                 const std::optional<BestEffortRates>& best_effort);
std::string machine_text(const MachineLog& log, const std::optional<BestEffortRates>& best_effort);

// Share of the run's time.
double share_of(const MachineLog& log, Nanos time);
// Names as RegimeTimes has them.
inline constexpr std::array<const char*, std::tuple_size_v<RegimeTimes>> kLimitNames = {
    "host_memory", "host_bandwidth", "link", "device", "nothing_offloaded"};
inline constexpr std::array<const char*, 5> kModeNames = {"resident", "piggyback", "overlap",
                                                          "lanes", "visitors"};
// Mean |predicted - actual| over the predicted time. Nullopt: no step was predicted.
std::optional<double> step_time_error(const MachineLog& log);

}  // namespace tandem::sim
