// What holds back the decoding of offloaded sequences, from rates measured over the last seconds:
// the number of sequences that the host holds, its memory's bandwidth, the link, or the room that
// the accelerator's steps have for visitors. (OmniServe 4; the bound of docs/two-tiers.md.)
//
//   host memory     0.97 N / ((d + 1) T)         N sequences, d layers, T of a step
//   host bandwidth  as many as the workers would attend for, were they never idle
//   link            as many as the link back would carry, were it never idle; by bytes the way out
//   device          rows left in a step / T
//
// In tokens per second, none below the rate that was reached; the lowest one names the regime. T is
// the mean of all steps, with residents or without. Pure arithmetic. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>

#include "base/clock.h"
#include "observe/records.h"

namespace tandem::observe {

enum class Regime : uint8_t { kHostMemory, kHostBandwidth, kLink, kDevice };
inline constexpr std::array<const char*, 4> kRegimeNames = {"host_memory", "host_bandwidth", "link",
                                                            "device"};

struct RegimeLimits {
  std::array<double, kRegimeNames.size()> tokens_per_second{};  // by Regime
  [[nodiscard]] Regime lowest() const;
};

class RegimeMeter {
 public:
  // `offloaded`: sequences whose KV was on the host during the step.
  void add_step(const StepRecord& step, int64_t offloaded);
  // The sums of now, after the step. True: limits() may have changed.
  bool add_tiers(const TierRecord& sums, Nanos now);
  // Nullopt while no offloaded token was computed within the window.
  [[nodiscard]] std::optional<RegimeLimits> limits() const;

  static constexpr Nanos kWindow = std::chrono::seconds(10);
  static constexpr Nanos kLook = std::chrono::milliseconds(500);

 private:
  struct Sums {
    Nanos at{0};
    TierRecord tiers;
    int64_t steps = 0;
    Nanos step_time{0};
    int64_t rows = 0;              // prompt and decode tokens
    double offloaded_seconds = 0;  // sequences x time
  };

  Sums now_;
  std::deque<Sums> seen_;  // oldest first, kLook apart, kWindow in all
};

}  // namespace tandem::observe
