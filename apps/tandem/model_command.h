// `tandem model make` and `tandem model info`.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace tandem {

// Adds `model` with its subcommands to `tandem` and returns it. Whichever was chosen runs inside
// tandem.parse() and leaves the exit code of the process in `exit_code` (0 done, 1 failed, 2
// usage), which must outlive the parse.
CLI::App* add_model_command(CLI::App& tandem, int& exit_code);

// "1.1 billion".
std::string rounded_count(int64_t count);

}  // namespace tandem
