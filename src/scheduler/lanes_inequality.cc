#include "scheduler/lanes_inequality.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tandem {
namespace {

double in_nanos(Nanos time) { return static_cast<double>(time.count()); }

// W, D and G of the header.
struct Windows {
  double host = 0;
  double with_lanes = 0;
  double without = 0;
};

Windows windows_of(const LaneTimes& decodes, const LaneTimes& whole, bool is_mixed,
                   MixedWindow window) {
  const double dense = in_nanos(decodes.dense);
  const double attention = in_nanos(decodes.attention);
  if (!is_mixed) {
    return {2 * dense + attention, 2 * dense + attention, dense + attention};
  }
  const double without = in_nanos(whole.dense + whole.attention);
  if (window == MixedWindow::kReal) {
    return {without + dense, without + dense, without};
  }
  return {without + dense, 2 * dense + attention, dense + attention};
}

// The rate at which the host attends for the rows that fit `window`, one row at least: rows of a
// later layer share nothing with them.
double host_rate_within(double window, const latency::HostTimes& host, const HostRows& all) {
  const double context = static_cast<double>(all.context) / static_cast<double>(all.rows);
  const double row =
      host.correction * (host.attention.per_row_nanos + host.attention.per_context_nanos * context);
  const double left = window - host.correction * host.attention.fixed_nanos;
  const auto limit = static_cast<double>(all.rows);
  const double rows = row > 0 ? std::clamp(std::floor(left / row), 1.0, limit) : limit;
  const auto attended = static_cast<int64_t>(std::llround(rows * context));
  return static_cast<double>(attended) /
         std::max(in_nanos(host.attention_time(static_cast<int64_t>(rows), attended)), 1.0);
}

}  // namespace

LanesInequality lanes_inequality(const LaneModel& model, const latency::HostTimes* host,
                                 const latency::StepShape& residents, const HostRows& on_host,
                                 MixedWindow window) {
  LanesInequality sides{.rate_ratio = 0, .bound = std::numeric_limits<double>::infinity()};
  if (residents.decode_rows == 0) {
    return sides;
  }
  latency::StepShape alone;
  alone.decode_rows = residents.decode_rows;
  alone.decode_context = residents.decode_context;
  alone.logit_rows = residents.decode_rows;
  const LaneTimes decodes = model.times(Lane{.residents = alone});
  const bool is_mixed = residents.prefill_rows > 0;
  const LaneTimes whole = is_mixed ? model.times(Lane{.residents = residents}) : decodes;
  const double attention = in_nanos(decodes.attention);
  const Windows times = windows_of(decodes, whole, is_mixed, window);
  const double lost = attention * (times.with_lanes / times.without - 1);
  if (lost > 0) {
    sides.bound = times.host / lost;
  }
  if (host != nullptr && on_host.context > 0 && on_host.rows > 0 && attention > 0) {
    const double accelerator_rate = static_cast<double>(residents.decode_context) / attention;
    const double host_rate = host_rate_within(times.host, *host, on_host);
    sides.rate_ratio = accelerator_rate / host_rate;
  }
  return sides;
}

}  // namespace tandem
