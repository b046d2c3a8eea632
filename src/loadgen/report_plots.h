// The plots of the report, each in its card and in `book`. Threads: any.
#pragma once

#include <cstddef>
#include <string>

#include "loadgen/load.h"
#include "loadgen/plot_book.h"
#include "loadgen/summary.h"

namespace tandem::loadgen {

// The colour of group i of n: -1 when there is one only and needs none.
int series_of(size_t group, size_t groups);

// Load, running requests and output over time, one below the other.
std::string timeline_card(const Summary& summary, PlotBook& book);
// Histograms of TTFT, TPOT and TBT, a class each.
std::string distribution_cards(const Summary& summary, PlotBook& book);
// TTFT of every request by time and by prompt length.
std::string scatter_cards(const Load& load, const RunResult& run, const Summary& summary,
                          PlotBook& book);

}  // namespace tandem::loadgen
