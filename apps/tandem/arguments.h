// What all subcommands need from the command line: --config files, TANDEM_* variables, and errors
// that name the nearest flag.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace tandem {

// Replaces `--config FILE` by the file's keys as flags, put before the others so that flags win.
// The file is YAML, one flag a key without the dashes; lists repeat the flag. An unknown key is an
// error that names the nearest flag of `command`.
Result<std::vector<std::string>> expand_config(const std::vector<std::string>& arguments,
                                               const CLI::App& command);

// Gives every option of `command` its environment variable: --max-num-seqs reads
// TANDEM_MAX_NUM_SEQS.
void name_environment(CLI::App& command);

// ", did you mean --max-num-seqs?", or nothing when no flag of `command` is near.
std::string nearest_flag(const std::string& unknown, const CLI::App& command);

// What is wrong with the subcommands that `arguments` begin with: "unknown subcommand 'serv', did
// you mean serve? (known: ...)". Empty when `root` knows them.
std::string unknown_subcommand(const std::vector<std::string>& arguments, const CLI::App& root);

}  // namespace tandem
