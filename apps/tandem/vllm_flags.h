// The flags of `vllm serve` that Tandem has no use for, so that a command line written for vLLM
// works or is told what to change: one table says of each what is accepted and why, or what to use
// instead. Flags with the same meaning are ordinary ones (serve_flags.h).
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace tandem {

// Adds them to `command`, without a place in its help. A refused one is a usage error; of an
// accepted one `notes` gets a line such as "--enforce-eager: there are no graphs to capture".
void add_vllm_flags(cli::Command command, std::vector<std::string>& notes);

// The table in Markdown, a row for each flag.
std::string vllm_flag_table();

// Other ways to write flags of `command`, as vLLM has them: `--max_model_len`, `-tp 1`,
// `--enable-prefix-caching` without a value, `--no-enable-prefix-caching`.
std::vector<std::string> plain_flags(std::vector<std::string> arguments, cli::Command command);

}  // namespace tandem
