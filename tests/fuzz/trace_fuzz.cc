// Traces in any of their formats: rows in order, within their limits.
#include "fuzz/fuzz.h"
#include "workload/trace.h"

namespace tandem::workload {
TANDEM_FUZZ_TARGET(input) {
  const Result<Trace> trace = parse_trace(input, "fuzz", {.most_bytes = 1 << 20});
  if (!trace.ok()) {
    CHECK(!trace.error().message.empty());
    return;
  }
  CHECK(!trace->rows.empty() && trace->models >= 1 && trace->format != TraceFormat::kAuto);
  Nanos last{0};
  for (const TraceRow& row : trace->rows) {
    CHECK(row.at >= last && row.input_tokens >= 0 && row.output_tokens >= 0);
    CHECK(row.model >= 0 && row.model < trace->models);
    last = row.at;
  }
}
}  // namespace tandem::workload
