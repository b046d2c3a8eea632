// The names of the log's levels. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem::log {

// All of them, from trace to off.
std::vector<std::string> level_names();
// The error of an unknown level lists the levels.
Status check_level(std::string_view level);

}  // namespace tandem::log
