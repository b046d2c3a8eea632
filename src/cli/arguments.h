// What all subcommands need from the command line: --config files, TANDEM_* variables, and errors
// that name the nearest flag.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command.h"

namespace tandem::cli {

// Replaces `--config FILE` by the file's keys as flags, put before the others so that flags win.
// The file is YAML, one flag a key without the dashes; lists repeat the flag. An unknown key is an
// error that names the nearest flag of `command`. Of an option that may be given by name and by
// place, one value is left: the argument's instead of the file's. Two arguments that differ are an
// error.
Result<std::vector<std::string>> expand_config(const std::vector<std::string>& arguments,
                                               Command command);

// Gives every option of `command` that its help shows an environment variable: --max-num-seqs reads
// TANDEM_MAX_NUM_SEQS. Kubernetes sets variables of the same form in every pod beside a Service
// called "tandem" (TANDEM_PORT=tcp://10.0.0.1:8000): these are not read.
void name_environment(Command command);
// The same for one option ("--isa"), if the command has it.
void name_environment(Command command, const std::string& flag);

// For a list whose variable adds to the values of flags and files: "--api-key=VALUE" if the
// variable of `flag` has a value, otherwise nothing. Flags and files replace the variables of other
// options.
std::vector<std::string> flags_of_variable(Command command, const std::string& flag);

// What should be said of the variables TANDEM_* in `environment` ("NAME=value", ended by null) that
// no option of `command` reads: those of Kubernetes in one line, and each that may be misspelt.
std::vector<std::string> unread_variables(Command command, const char* const* environment);

// "unknown flag --max-num-seq, did you mean --max-num-seqs?" of the first flag that `command` does
// not have; empty: it has all of them.
std::string unknown_flag(const std::vector<std::string>& arguments, Command command);

// ", did you mean --max-num-seqs?", or nothing when no flag of `command` is near.
std::string nearest_flag(const std::string& unknown, Command command);
// ", did you mean max-num-seqs?" of a key of a YAML file or of "key=value;...", which is a flag
// written without its dashes.
std::string nearest_key(std::string_view unknown, Command command);
// The same of other names.
std::string nearest_name(const std::string& unknown, const std::vector<std::string>& known);

// What is wrong with the subcommands that `arguments` begin with: "unknown subcommand 'serv', did
// you mean serve? (known: ...)". Empty when `root` knows them.
std::string unknown_subcommand(const std::vector<std::string>& arguments, Command root);

}  // namespace tandem::cli
