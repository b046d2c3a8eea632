#include "bench/tiers_bounds.h"

namespace tandem::bench {
namespace {

constexpr double kReadyShare = 0.97;  // of N sequences that can be on their way at a time

template <class Value>
double median_of(const std::vector<TiersWindow>& windows, Value TiersWindow::*member) {
  std::vector<double> values;
  for (const TiersWindow& window : windows) {
    values.push_back(static_cast<double>(window.*member));
  }
  std::ranges::sort(values);
  return values.empty() ? 0.0 : values[values.size() / 2];
}

}  // namespace

double alone_seconds(const TiersWindow& window, const TiersWindow& before,
                     const TiersWindow& after) {
  const double share =
      (window.middle_step - before.middle_step) / (after.middle_step - before.middle_step);
  return before.step_seconds + share * (after.step_seconds - before.step_seconds);
}

TiersWindow medians(const std::vector<TiersWindow>& windows) {
  TiersWindow window;
  window.steps = static_cast<int64_t>(median_of(windows, &TiersWindow::steps));
  for (const auto member :
       {&TiersWindow::seconds, &TiersWindow::middle_step, &TiersWindow::step_seconds,
        &TiersWindow::over_model, &TiersWindow::modelled_seconds, &TiersWindow::engine_seconds,
        &TiersWindow::advance_seconds, &TiersWindow::advances, &TiersWindow::visits,
        &TiersWindow::hops, &TiersWindow::hop_bytes_out, &TiersWindow::hop_bytes_back,
        &TiersWindow::attended_bytes, &TiersWindow::host_rate, &TiersWindow::host_busy,
        &TiersWindow::hops_in_flight, &TiersWindow::overrun_share}) {
    window.*member = median_of(windows, member);
  }
  return window;
}

int64_t steps_of_window(int64_t left, Nanos length, Nanos to_come) {
  const double part = to_seconds(length) / to_seconds(std::max(length, to_come));
  return std::max<int64_t>(1, static_cast<int64_t>(part * static_cast<double>(left)));
}

const char* TiersBound::regime() const {
  if (least() == sequences) {
    return "host memory (sequences)";
  }
  return least() == link ? "link" : "host bandwidth";
}

TiersBound bound_of(const TiersWindow& live, const TiersSetup& setup) {
  const double d = setup.layers;
  // The directions share nothing, so the fuller one counts.
  const double per_token =
      live.hops > 0 ? std::max(live.hop_bytes_out, live.hop_bytes_back) / live.hops * d : 0;
  return {.sequences = kReadyShare * setup.offloaded / ((d + 1) * live.mean_step_seconds()),
          .host_bandwidth = setup.host_cores * live.host_rate / (d * live.attended_bytes),
          .link = per_token > 0 ? setup.link_bytes_per_second / per_token : 0};
}

}  // namespace tandem::bench
