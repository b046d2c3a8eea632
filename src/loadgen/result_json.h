// A run's result as JSON: vLLM's benchmark keys at the top level, so that tools made for them work,
// and everything else under "tandem". Threads: any.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"
#include "loadgen/load.h"
#include "loadgen/run_info.h"
#include "loadgen/summary.h"

namespace tandem::loadgen {

enum class Detail : uint8_t { kSummary, kRequests };  // kRequests: every request and token gap

nlohmann::ordered_json result_json(const RunInfo& info, const Load& load, const RunResult& run,
                                   const Summary& summary, Detail detail);

// Writes by way of a temporary name, so that a file is whole or not there. A device or a pipe of
// that name is written to.
Status write_text(const std::string& path, const std::string& text);

}  // namespace tandem::loadgen
