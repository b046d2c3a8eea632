// The process's log: lines on standard error, levels set once at start. Any thread. Never log
// prompts, keys or paths of uploaded files.
#pragma once

#include <spdlog/spdlog.h>

#include <string_view>

#include "base/result.h"

namespace tandem::log {

// Of trace, debug, info, warning, error, off. Call before threads start; again to change it.
Status start(std::string_view level);

using spdlog::debug;
using spdlog::error;
using spdlog::info;
using spdlog::trace;
using spdlog::warn;

}  // namespace tandem::log
