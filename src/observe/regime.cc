#include "observe/regime.h"

#include <algorithm>
#include <limits>

#include "base/units.h"

namespace tandem::observe {
namespace {

// Of the offloaded sequences, those that are between two tokens at a time do not decode.
constexpr double kDecodingShare = 0.97;

double over(double amount, double by) {
  return by > 0 ? amount / by : std::numeric_limits<double>::infinity();
}

}  // namespace

Regime RegimeLimits::lowest() const {
  return static_cast<Regime>(std::ranges::min_element(tokens_per_second) -
                             tokens_per_second.begin());
}

void RegimeMeter::add_step(const StepRecord& step, int64_t offloaded) {
  ++now_.steps;
  now_.step_time += step.duration;
  now_.rows += step.resident_rows;
  now_.offloaded_seconds += static_cast<double>(offloaded) * to_seconds(step.duration);
}

bool RegimeMeter::add_tiers(const TierRecord& sums, Nanos now) {
  now_.at = now;
  now_.tiers = sums;
  if (!seen_.empty() && now - seen_.back().at < kLook) {
    return false;
  }
  seen_.push_back(now_);
  while (seen_.size() > 2 && now - seen_[1].at >= kWindow) {
    seen_.pop_front();
  }
  return true;
}

std::optional<RegimeLimits> RegimeMeter::limits() const {
  if (seen_.size() < 2) {
    return std::nullopt;
  }
  const Sums& a = seen_.front();
  const Sums& b = seen_.back();
  const double seconds = to_seconds(b.at - a.at);
  const double layers = b.tiers.counts.layers;
  const double tokens =
      over(static_cast<double>(b.tiers.counts.hops - a.tiers.counts.hops), layers);
  const auto steps = static_cast<double>(b.steps - a.steps);
  const double step_seconds = over(to_seconds(b.step_time - a.step_time), steps);
  if (!(tokens > 0) || !(seconds > 0) || !(steps > 0) || layers <= 0) {
    return std::nullopt;
  }
  const double sequences =
      over(b.offloaded_seconds - a.offloaded_seconds, to_seconds(b.step_time - a.step_time));
  const double attended = to_seconds(b.tiers.counts.attention_time - a.tiers.counts.attention_time);
  const auto bytes_out =
      static_cast<double>(b.tiers.counts.bytes_to_host - a.tiers.counts.bytes_to_host);
  const auto bytes_back =
      static_cast<double>(b.tiers.counts.bytes_from_host - a.tiers.counts.bytes_from_host);
  const double returning =
      to_seconds(b.tiers.counts.returning_time - a.tiers.counts.returning_time);
  const double slower_way = std::max(1.0, bytes_back > 0 ? bytes_out / bytes_back : 1.0);
  const double room = std::max(
      0.0, static_cast<double>(b.tiers.max_rows) - static_cast<double>(b.rows - a.rows) / steps);
  RegimeLimits limits;
  limits.tokens_per_second = {
      over(kDecodingShare * sequences, (layers + 1) * step_seconds),
      over(tokens * static_cast<double>(b.tiers.counts.workers), attended),
      over(tokens, returning * slower_way),
      over(room, step_seconds),
  };
  // The rates are estimates; a limit below the rate that was reached would be no limit.
  for (double& limit : limits.tokens_per_second) {
    limit = std::max(limit, tokens / seconds);
  }
  return limits;
}

}  // namespace tandem::observe
