// Says which request is to be sent when: at its planned time, never later for a slow server (open
// loop), unless a bound on requests under way holds it back. Reads no clock and sends nothing.
// Threads: one owner.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace tandem::loadgen {

class Dispatcher {
 public:
  // `planned` ascends. `max_concurrency` 0: no bound.
  Dispatcher(std::vector<Nanos> planned, int64_t max_concurrency);

  struct Due {
    int64_t index = 0;  // of the request
    Nanos at{0};        // since when it could be sent; now - at is the generator's lateness
  };
  // The next request to send at `now`, which then counts as under way.
  std::optional<Due> take(Nanos now);
  // One request ended at `now`.
  void ended(Nanos now);

  // When take() may give something without another one ending; nullopt: not by time alone.
  [[nodiscard]] std::optional<Nanos> wake_at() const;
  [[nodiscard]] bool all_sent() const { return next_ == std::ssize(planned_); }
  [[nodiscard]] int64_t sent() const { return next_; }
  [[nodiscard]] int64_t under_way() const { return under_way_; }

 private:
  [[nodiscard]] bool is_full() const {
    return max_concurrency_ > 0 && under_way_ >= max_concurrency_;
  }

  std::vector<Nanos> planned_;
  int64_t max_concurrency_;
  int64_t next_ = 0;
  int64_t under_way_ = 0;
  Nanos place_since_{0};  // when the place that the next request takes came free
};

}  // namespace tandem::loadgen
