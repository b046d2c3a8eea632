// The subcommands of `tandem`. Each function gives an empty command its flags and returns the
// function that runs it, which returns the exit code of the process (0 done, 1 failed, 2 usage).
#pragma once

#include <functional>

#include "cli/command.h"

namespace tandem {

using RunCommand = std::function<int()>;

RunCommand describe_model(cli::Command app);
RunCommand describe_serve(cli::Command app);
RunCommand describe_replay(cli::Command app);
RunCommand describe_batch(cli::Command app);
RunCommand describe_bench(cli::Command app);
RunCommand describe_profile(cli::Command app);
RunCommand describe_tune(cli::Command app);
RunCommand describe_pull(cli::Command app);
RunCommand describe_list(cli::Command app);
RunCommand describe_chat(cli::Command app);
RunCommand describe_simulate(cli::Command app);
// These print all commands of the program, with the flags that have been described.
RunCommand describe_completion(cli::Command app);
RunCommand describe_manual(cli::Command app);

}  // namespace tandem
