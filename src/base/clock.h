// Where time comes from. scripts/check_layers.py lists the few rooms that may read another clock.
#pragma once

#include <chrono>
#include <memory>

namespace tandem {

using Nanos =
    std::chrono::nanoseconds;  // a duration, or a point on a Clock (since that clock's zero)

class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual Nanos now() const = 0;  // never goes back; any thread
  // The same time for threads that may outlive this clock. Null: it is not the machine's time.
  [[nodiscard]] virtual std::shared_ptr<const Clock> for_threads() const { return nullptr; }
};

// The machine's monotonic clock.
class SteadyClock final : public Clock {
 public:
  [[nodiscard]] Nanos now() const override {
    return std::chrono::steady_clock::now().time_since_epoch();
  }
  [[nodiscard]] std::shared_ptr<const Clock> for_threads() const override {
    return std::make_shared<const SteadyClock>();
  }
};

// Virtual time, moved by hand. One thread.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] Nanos now() const override { return now_; }
  void advance(Nanos by) { now_ += by; }
  void set(Nanos to) { now_ = to; }

 private:
  Nanos now_{0};
};

inline double to_seconds(Nanos t) { return std::chrono::duration<double>(t).count(); }
inline double to_millis(Nanos t) { return std::chrono::duration<double, std::milli>(t).count(); }

}  // namespace tandem
