// The subcommands of `tandem`. Each add function describes one to CLI11 and returns it with what to
// do when it was chosen: the exit code of the process (0 done, 1 failed, 2 usage).
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

namespace tandem {

struct Command {
  CLI::App* app = nullptr;
  std::function<int()> run;
};

Command add_serve_command(CLI::App& tandem);
Command add_replay_command(CLI::App& tandem);
Command add_batch_command(CLI::App& tandem);
Command add_bench_command(CLI::App& tandem);
Command add_profile_command(CLI::App& tandem);

}  // namespace tandem
