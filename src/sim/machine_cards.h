// The cards of a simulated machine in a run's report: what it did over time, when each side was
// busy, what limited it, and how well steps were predicted. Threads: any.
#pragma once

#include "loadgen/report_html.h"
#include "sim/machine_log.h"

namespace tandem::sim {

// The log must have ended.
loadgen::ReportPage machine_cards(const MachineLog& log);

}  // namespace tandem::sim
