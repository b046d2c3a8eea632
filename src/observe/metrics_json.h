// Metrics as JSON, for the page at / and for scripts: Tandem's own series (tandem_*) without the
// prefix. Threads: any.
#pragma once

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

namespace tandem::observe {

// One object, a member a family:
//   "requests_running": 3                                     no label but model_name
//   "slo_requests_total": [{"class": "best_effort", "outcome": "met", "value": 2}, ...]
//   "step_seconds": {"count": 7, "sum": 0.02}                 histograms, without their buckets
// Times are in seconds, as the names say. A value that is not finite is null. Families without a
// series are left out.
[[nodiscard]] std::string metrics_json(const std::vector<prometheus::MetricFamily>& families);

}  // namespace tandem::observe
