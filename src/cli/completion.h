// The scripts by which shells complete a program's command line: subcommands, flags, the values of
// flags that take one of some, and files for other texts. They are complete in themselves: pressing
// Tab does not run the program. Threads: any.
#pragma once

#include <string>

#include "cli/outline.h"

namespace tandem::cli {

// For bash 4 or later: read by `source`, or by bash-completion from a file with the program's name.
std::string bash_completion(const CommandOutline& program);

// For zsh: a file `_NAME` in a folder of $fpath, or read by `source` after compinit.
std::string zsh_completion(const CommandOutline& program);

}  // namespace tandem::cli
