#include "latency/corrected_host.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "latency/corrected_model.h"

namespace tandem::latency {
namespace {

// As for steps: the share of the error, in logarithms, by which the factor moves.
constexpr double kSlowestHost = 1.0 / 32;
constexpr double kFirstLooks = 8;
constexpr double kMostOff = 0.25;
// Believed work between two looks, so that work under way at either end counts little.
constexpr Nanos kLeastWork = std::chrono::milliseconds(20);

}  // namespace

void CorrectedHost::observe(const HostWork& work) {
  sum_.busy += work.busy;
  sum_.rows += work.rows;
  sum_.context += work.context;
  const double believed = times_.busy.nanos(sum_.rows, sum_.context);
  if (believed < static_cast<double>(kLeastWork.count()) || sum_.busy <= Nanos{0}) {
    return;
  }
  const double off =
      std::log(static_cast<double>(sum_.busy.count()) / (believed * times_.correction));
  const double rate = std::max(kSlowestHost, 1 / (kFirstLooks + static_cast<double>(observed_)));
  ++observed_;
  sum_ = {};
  times_.correction =
      std::clamp(times_.correction * std::exp(rate * std::clamp(off, -kMostOff, kMostOff)),
                 kLeastCorrection, kMostCorrection);
}

}  // namespace tandem::latency
