// The subcommands of `tandem`. Each add function describes one and returns it with the function
// that runs it, which returns the exit code of the process (0 done, 1 failed, 2 usage).
#pragma once

#include <functional>

#include "cli/command.h"

namespace tandem {

struct Subcommand {
  cli::Command command;
  std::function<int()> run;
};

Subcommand add_serve_command(cli::Command tandem);
Subcommand add_replay_command(cli::Command tandem);
Subcommand add_batch_command(cli::Command tandem);
Subcommand add_bench_command(cli::Command tandem);
Subcommand add_profile_command(cli::Command tandem);
Subcommand add_tune_command(cli::Command tandem);
Subcommand add_simulate_command(cli::Command tandem);
Subcommand add_pull_command(cli::Command tandem);
Subcommand add_list_command(cli::Command tandem);
Subcommand add_chat_command(cli::Command tandem);
// These describe every command that `tandem` has when they run.
Subcommand add_completion_command(cli::Command tandem);
Subcommand add_manual_command(cli::Command tandem);

}  // namespace tandem
