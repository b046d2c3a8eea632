// What the step-time models share: which coefficients they take, and nanoseconds as whole numbers.
// Internal to latency/.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/result.h"

namespace tandem::latency {

// More than any step takes (11 days). Every answer of a model is cut to it, so that thousands of
// them can be added without passing the end of Nanos.
inline constexpr double kMostNanos = 1e15;
inline constexpr double kMostRowNanos = 1e9;  // of a row, a token, a pair: a second
inline constexpr int32_t kMostLayers = 10'000;

inline Nanos to_nanos(double value) {
  return Nanos{static_cast<int64_t>(std::min(value, kMostNanos) + 0.5)};
}

// `parts` of `of` equal parts of a time.
inline Nanos share_of(Nanos time, int32_t parts, int32_t of) {
  return to_nanos(static_cast<double>(time.count()) * parts / of);
}

inline Status check_coefficient(std::string_view what, double value, double most) {
  if (std::isfinite(value) && value >= 0 && value <= most) {
    return {};
  }
  return invalid_argument(
      fmt::format("{} is {}; it must be between 0 and {:g}", what, value, most));
}

inline Status check_layers(int32_t layers) {
  if (layers >= 1 && layers <= kMostLayers) {
    return {};
  }
  return invalid_argument(
      fmt::format("layers is {}; it must be between 1 and {}", layers, kMostLayers));
}

}  // namespace tandem::latency
