// Which policy a server runs when the operator names none (--policy auto), and how many tokens a
// step may have under a policy whose budget is to be measured (`sarathi` without a number).
//
// | targets given, or a profile is named or lies ready | one tier | two tiers |
// |---|---|---|
// | yes | omniserve | omniserve |
// | no | sarathi | piggyback |
//
// All of them serve latency-sensitive requests first. Start-up only, one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "latency/batch.h"
#include "node/node_options.h"
#include "node/planned_model.h"

namespace tandem {

// True: `options.policy` is empty or "auto".
bool is_automatic(const NodeOptions& options);

// Where all requests are alike, as in a batch or a benchmark: first come, first served. Replaces an
// automatic policy by accel_only, on two tiers by piggyback.
void choose_plain_policy(NodeOptions& options);

struct PolicyChoice {
  std::string policy;
  std::string reason;  // for the log: "a TTFT or TPOT target is given"
};
// Reads a profile file if there is one.
PolicyChoice choose_automatic_policy(const NodeOptions& options, const OpenedModel& model);

// A line for each option of `options` that was changed and that its policy does not read, and for a
// second tier that its policy does not use. Empty for a policy that is not chosen yet.
std::vector<std::string> options_without_effect(const NodeOptions& options);
// Logs each line as a warning.
void warn_of_options_without_effect(const NodeOptions& options);

// True: the policy's step budget is to be measured.
bool wants_step_budget(const NodeOptions& options);

// Under its policy the offloaded tokens of a stage join a step together (overlap), not one by one.
bool joins_in_cohorts(const NodeOptions& options);

// Its policy sends prompts straight to the host, and may.
bool stages_prompts(const NodeOptions& options);

struct SmoothBudget {
  int32_t tokens = 0;
  Nanos step{0};    // what a step of so many prompt tokens takes
  Nanos decode{0};  // a step of one decode
  Nanos limit{0};   // how long a step may take so that decodes stay smooth
};
// The largest of 64, 128, 256 and 512 rows (fewer where a step has fewer) whose step takes at most
// 100 ms, or three times as long as one decode alone if that is longer.
Result<SmoothBudget> measure_step_budget(latency::BatchMeter& meter);

}  // namespace tandem
