// What one stream has done, counted by its thread and read by any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "device/device.h"
#include "device/emulated/op_check.h"

namespace tandem::device {

class StreamCounters {
 public:
  explicit StreamCounters(StreamKind kind) : kind_(kind) {}

  // The stream's thread. Nobody else writes, so a load and a store make an addition; relaxed, so
  // that counting orders nothing.
  void add_op(Nanos busy) {
    add(ops_, 1);
    add(busy_nanos_, busy.count());
  }
  void set_pacing(int64_t overruns, Nanos lateness) {
    overruns_.store(overruns, std::memory_order_relaxed);
    lateness_nanos_.store(lateness.count(), std::memory_order_relaxed);
  }
  void add_event() { add(events_, 1); }
  void add_copy(CopyDirection direction, int64_t bytes) {
    add(bytes_[static_cast<size_t>(direction)], bytes);
  }

  [[nodiscard]] StreamKind kind() const { return kind_; }
  [[nodiscard]] int64_t ops() const { return ops_.load(std::memory_order_relaxed); }
  [[nodiscard]] Nanos busy() const { return Nanos{busy_nanos_.load(std::memory_order_relaxed)}; }
  [[nodiscard]] int64_t events() const { return events_.load(std::memory_order_relaxed); }
  [[nodiscard]] int64_t overruns() const { return overruns_.load(std::memory_order_relaxed); }
  [[nodiscard]] Nanos lateness() const {
    return Nanos{lateness_nanos_.load(std::memory_order_relaxed)};
  }
  [[nodiscard]] int64_t bytes(CopyDirection direction) const {
    return bytes_[static_cast<size_t>(direction)].load(std::memory_order_relaxed);
  }

 private:
  static void add(std::atomic<int64_t>& counter, int64_t by) {
    counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }

  const StreamKind kind_;
  std::atomic<int64_t> ops_{0};
  std::atomic<int64_t> busy_nanos_{0};
  std::atomic<int64_t> events_{0};
  std::atomic<int64_t> overruns_{0};
  std::atomic<int64_t> lateness_nanos_{0};
  std::array<std::atomic<int64_t>, 5> bytes_{};  // by CopyDirection
};

}  // namespace tandem::device
