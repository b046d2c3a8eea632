// The flags of a measurement for its result. Threads: any; plain functions.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "cli/command.h"

namespace tandem::bench {

// Every flag of the command with its effective value, without credentials.
nlohmann::ordered_json flags_json(cli::Command command);

}  // namespace tandem::bench
