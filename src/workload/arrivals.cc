#include "workload/arrivals.h"

#include <fmt/format.h>

#include <cmath>

namespace tandem::workload {

namespace {

constexpr double kLowestRate = 1e-4;
constexpr double kHighestRate = 1e6;
constexpr double kLongestRun_s = 1e9;  // times stay far from the end of Nanos

bool is_rate(double rate) { return rate >= kLowestRate && rate <= kHighestRate; }

Nanos from_seconds(double seconds) {
  return Nanos(std::llround(std::min(seconds, kLongestRun_s) * 1e9));
}

}  // namespace

Status check(const ArrivalOptions& options) {
  if (options.kind == ArrivalKind::kBursts) {
    if (options.burst_every < std::chrono::milliseconds(1) ||
        options.burst_every > std::chrono::hours(24)) {
      return invalid_argument("burst-every must lie between 1ms and 24 hours", "burst-every");
    }
    if (!(options.burst_low_per_s >= 0) || !is_rate(options.burst_high_per_s) ||
        options.burst_low_per_s > options.burst_high_per_s) {
      return invalid_argument(
          fmt::format("burst-rates must be LOW:HIGH requests a second with 0 <= LOW <= HIGH and "
                      "HIGH from {} to {}, not {}:{}",
                      kLowestRate, kHighestRate, options.burst_low_per_s, options.burst_high_per_s),
          "burst-rates");
    }
    return {};
  }
  if (!is_rate(options.rate_per_s) && options.rate_per_s != INFINITY) {
    return invalid_argument(fmt::format("request-rate must be inf or from {} to {} requests a "
                                        "second, not {}",
                                        kLowestRate, kHighestRate, options.rate_per_s),
                            "request-rate");
  }
  if (!(options.burstiness >= 0.01 && options.burstiness <= 1000)) {
    return invalid_argument(
        fmt::format("burstiness must lie between 0.01 and 1000, not {}", options.burstiness),
        "burstiness");
  }
  return {};
}

Arrivals::Arrivals(const ArrivalOptions& options, uint64_t seed)
    : options_(options), random_(seed) {}

Nanos Arrivals::next() {
  if (options_.kind == ArrivalKind::kBursts) {
    draw_until(random_.exponential());
  } else if (std::isinf(options_.rate_per_s)) {
    return Nanos{0};
  } else if (options_.kind == ArrivalKind::kFixed) {
    const Nanos at = from_seconds(now_s_);
    now_s_ += 1 / options_.rate_per_s;
    return at;
  } else if (options_.burstiness == 1.0) {
    now_s_ += random_.exponential() / options_.rate_per_s;
  } else {
    now_s_ += random_.gamma(options_.burstiness) / (options_.rate_per_s * options_.burstiness);
  }
  return from_seconds(now_s_);
}

// Lets time pass until the rate, summed over it, has reached `want` expected arrivals.
void Arrivals::draw_until(double want) {
  while (now_s_ < kLongestRun_s) {
    if (now_s_ >= window_end_s_) {
      window_end_s_ += to_seconds(options_.burst_every);
      window_rate_per_s_ =
          options_.burst_low_per_s +
          random_.uniform() * (options_.burst_high_per_s - options_.burst_low_per_s);
    }
    const double left = (window_end_s_ - now_s_) * window_rate_per_s_;
    if (want <= left) {
      now_s_ += want / window_rate_per_s_;
      return;
    }
    want -= left;
    now_s_ = window_end_s_;
  }
}

}  // namespace tandem::workload
