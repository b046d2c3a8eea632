// What the readers of scenarios share. Only for the files of this folder.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/command.h"

namespace tandem::sim {

Error error_at(const std::string& file, int line, const std::string& what);

// "max_seqs" is "max-num-seqs"; empty: no such option.
std::string option_of(std::string_view key, cli::Command command);

}  // namespace tandem::sim
