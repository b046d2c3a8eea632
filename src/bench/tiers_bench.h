// `tandem bench tiers`: best-effort decode that rides along on a paced, hollow accelerator while
// this machine's cores attend for it, beside the bound of its regime; and what residents notice of
// it. No weights and no files: dense work only takes the time that a cost model says, everything
// that Tandem does itself (plan, binds, routes, copies, attention on the host) is real.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "bench/tiers_run.h"
#include "cli/command.h"
#include "device/open/open.h"

namespace tandem::bench {

struct BenchTiersOptions {
  std::string shape = "8B";  // a preset of `tandem model make`
  int32_t vocabulary = 32000;
  std::string pace = "h100";
  double step_ms = 0;    // of residents alone; the pace is slowed down to it. 0: as it is
  double link_gbps = 0;  // 0: the profile's own
  int32_t cores = 1;     // that play the accelerator
  int32_t host_cores = 1;
  std::optional<device::AcceleratorSpec> accelerator = {};  // absent: it is emulated
  std::filesystem::path model;                              // its folder
  int64_t device_memory_bytes = 0;
  std::string policy = "piggyback";  // or overlap, lanes: how offloaded tokens join
  int32_t group_stages = 4;
  TiersLoad load;
  double seconds = 10;  // of a window
  int32_t rounds = 3;   // live and frozen windows, in turn; medians are shown
  std::string json_path;
  std::string flags = "{}";  // of the command, for that file: see command_flags.h
  std::string timeline_path;
};

void add_tiers_bench_flags(cli::Command app, BenchTiersOptions& options);

// Prints; returns the process's exit code.
int bench_tiers(const BenchTiersOptions& options);

}  // namespace tandem::bench
