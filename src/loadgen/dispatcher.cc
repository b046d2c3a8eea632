#include "loadgen/dispatcher.h"

#include <algorithm>

#include "base/check.h"

namespace tandem::loadgen {

Dispatcher::Dispatcher(std::vector<Nanos> planned, int64_t max_concurrency)
    : planned_(std::move(planned)), max_concurrency_(max_concurrency) {
  CHECK(std::ranges::is_sorted(planned_), "{} requests are not planned by time", planned_.size());
}

std::optional<Dispatcher::Due> Dispatcher::take(Nanos now) {
  if (all_sent() || is_full() || planned_[static_cast<size_t>(next_)] > now) {
    return std::nullopt;
  }
  const Due due{next_, std::max(planned_[static_cast<size_t>(next_)], place_since_)};
  ++next_;
  ++under_way_;
  return due;
}

void Dispatcher::ended(Nanos now) {
  CHECK(under_way_ > 0, "{} requests are under way", under_way_);
  if (is_full()) {
    place_since_ = now;
  }
  --under_way_;
}

std::optional<Nanos> Dispatcher::wake_at() const {
  return all_sent() || is_full() ? std::nullopt
                                 : std::optional(planned_[static_cast<size_t>(next_)]);
}

}  // namespace tandem::loadgen
