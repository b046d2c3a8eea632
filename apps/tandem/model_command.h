// `tandem model make` and `tandem model info`.
#pragma once

#include <cstdint>
#include <string>

#include "cli/command.h"

namespace tandem {

// Adds `model` with its subcommands to `tandem` and returns it. The chosen one runs inside the
// parse and leaves the exit code of the process in `exit_code` (0 done, 1 failed, 2 usage), which
// must outlive the parse.
cli::Command add_model_command(cli::Command tandem, int& exit_code);

// "1.1 billion".
std::string rounded_count(int64_t count);

}  // namespace tandem
