#include "device/cuda/quickest_algorithm.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tandem::device::cuda {
namespace {

constexpr double kTimedUs = 3000;  // about, of the products that are timed together
constexpr int kMinRepeats = 2;
constexpr int kMaxRepeats = 64;
constexpr int kRounds = 3;
constexpr int kRoundsOfAll = 2;
constexpr double kFarBehind = 1.15;  // an algorithm this much slower takes no part in later rounds
constexpr double kMinGain = 1.03;

}  // namespace

QuickestAlgorithm quickest_algorithm(int count, const TimeAlgorithm& time) {
  for (int i = 0; i < count; ++i) {
    time(i, 1);  // loads its kernels
  }
  const double estimate = time(0, kMinRepeats) / kMinRepeats;
  const int repeats = std::isfinite(estimate)
                          ? static_cast<int>(std::clamp(kTimedUs / std::max(estimate, 1e-3),
                                                        double{kMinRepeats}, double{kMaxRepeats}))
                          : kMinRepeats;
  std::vector<double> best(static_cast<size_t>(count), kServesNone);
  for (int round = 0; round < kRounds; ++round) {
    const double leader = *std::ranges::min_element(best);
    for (int i = 0; i < count; ++i) {
      double& own = best[static_cast<size_t>(i)];
      if (round < kRoundsOfAll || i == 0 || own <= leader * kFarBehind) {
        own = std::min(own, time(i, repeats) / repeats);
      }
    }
  }
  const auto found = std::ranges::min_element(best);
  const bool gains = *found * kMinGain <= best[0];
  return {.algorithm = gains ? static_cast<int>(found - best.begin()) : 0,
          .us = gains ? *found : best[0],
          .usual_us = best[0]};
}

}  // namespace tandem::device::cuda
