// `tandem bench scheduler`: what deciding takes, with many requests at hand and no model to run: a
// step's plan under omniserve, and admission's verdicts; then plans on two tiers
// (two_tier_plans.h). The engine is the real one, its executor answers at once, and time is what a
// made-up model of time says, so that neither memory nor device are in the figures. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "bench/two_tier_plans.h"
#include "cli/command.h"

namespace tandem::bench {

struct BenchSchedulerOptions {
  int32_t running = 1000;   // sequences, half of them latency sensitive
  int32_t waiting = 10000;  // requests
  int32_t line = 64;        // of these, latency-sensitive prompts with targets
  int32_t steps = 300;      // measured
  TwoTierPlansOptions two_tiers;
  std::string json_path;  // empty: none
};

void add_scheduler_bench_flags(cli::Command command, BenchSchedulerOptions& options);

// Prints; returns the process's exit code.
int bench_scheduler(const BenchSchedulerOptions& options);

}  // namespace tandem::bench
