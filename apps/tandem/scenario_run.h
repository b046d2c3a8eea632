// The options of a scenario, read as if each key stood on the command line of `tandem simulate`.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "bench/load_flags.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/config_file.h"
#include "engine_flags.h"
#include "sim/scenario.h"
#include "simulate_flags.h"

namespace tandem {

// The keys that a scenario may have, with the commands that they refer to.
class KnownKeys {
 public:
  // `options`: the command `tandem simulate`, which outlives this.
  explicit KnownKeys(cli::Command options);
  KnownKeys(const KnownKeys&) = delete;
  KnownKeys& operator=(const KnownKeys&) = delete;
  [[nodiscard]] const sim::ScenarioKeys& keys() const { return keys_; }

 private:
  cli::CommandLine stream_line_{"", "tandem"};
  bench::StreamFlags stream_;
  cli::CommandLine engine_line_{"", "tandem"};
  EngineFlags engine_;
  sim::ScenarioKeys keys_;
};

struct ReadRun {
  cli::CommandLine line{"", "tandem"};
  SimulateFlags flags;
  cli::Command command = add_simulate_flags(line.root(), flags);
};

// `file` is named in errors.
Result<std::unique_ptr<ReadRun>> read_run(const cli::ConfigNode& options, const std::string& file);

}  // namespace tandem
