// A run as one page that a person reads: figures, plots and how it was made. Nothing from outside
// is loaded; text of servers and users is escaped. Threads: any.
#pragma once

#include <string>
#include <vector>

#include "loadgen/load.h"
#include "loadgen/plot_book.h"
#include "loadgen/run_info.h"
#include "loadgen/summary.h"

namespace tandem::loadgen {

struct ReportPage {
  std::string html;
  std::vector<PlotFile> plots;  // those of the page, but not those of `cards`
};

// `cards`: HTML that stands before the description of a simulated machine.
ReportPage report_page(const RunInfo& info, const Load& load, const RunResult& run,
                       const Summary& summary, const std::string& cards);
// The page alone.
std::string report_html(const RunInfo& info, const Load& load, const RunResult& run,
                        const Summary& summary);

}  // namespace tandem::loadgen
