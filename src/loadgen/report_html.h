// A run as one page that a person reads: figures, plots and how it was made. Nothing from outside
// is loaded; text of servers and users is escaped. Threads: any.
#pragma once

#include <string>

#include "loadgen/load.h"
#include "loadgen/run_info.h"
#include "loadgen/summary.h"

namespace tandem::loadgen {

std::string report_html(const RunInfo& info, const Load& load, const RunResult& run,
                        const Summary& summary);

}  // namespace tandem::loadgen
