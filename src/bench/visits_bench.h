// `tandem bench visits`: what rows of offloaded tokens cost the engine's thread. Engine, policy,
// binder, executor, hop core and workers are the real ones, on a device that does nothing: so
// neither an accelerator's interface nor whoever shares this core is in the figures, and how often
// the device would be called is counted. Two cores are best: one for the engine, one for a worker.
#pragma once

#include <cstdint>
#include <string>

#include "cli/command.h"

namespace tandem::bench {

struct BenchVisitsOptions {
  int32_t layers = 32;
  int32_t group_stages = 4;  // launched together
  int32_t residents = 16;    // latency-sensitive sequences that decode on the accelerator
  int32_t offloaded = 410;   // best-effort sequences that decode with their KV on the host
  int32_t wakes = 1;         // calls of the engine for hops alone, between two groups
  int32_t evict_mib = 0;     // of other data that the core touches before each call
  int32_t steps = 1000;      // measured
  std::string json_path;     // empty: none
};

void add_visits_bench_flags(cli::Command command, BenchVisitsOptions& options);

// Prints; returns the process's exit code.
int bench_visits(const BenchVisitsOptions& options);

}  // namespace tandem::bench
