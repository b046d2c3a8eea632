// The options of a scenario, read as if each key stood on the command line of `tandem simulate`.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/config_file.h"
#include "simulate_flags.h"

namespace tandem {

struct ReadRun {
  cli::CommandLine line{"", "tandem"};
  SimulateFlags flags;
  cli::Command command = add_simulate_flags(line.root(), flags);
};

// `file` is named in errors.
Result<std::unique_ptr<ReadRun>> read_run(const cli::ConfigNode& options, const std::string& file);

}  // namespace tandem
