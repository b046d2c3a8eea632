// The streams of a device and their events by name. Threads: as device.h says of the functions of
// the same names; add and set_listener from one thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "device/cpu/stream.h"
#include "device/cpu/worker_pool.h"
#include "device/device.h"

namespace tandem::device {

class StreamSet {
 public:
  StreamSet() = default;
  ~StreamSet();  // finishes everything that was launched
  StreamSet(const StreamSet&) = delete;
  StreamSet& operator=(const StreamSet&) = delete;

  // At most WorkerPool::kMaxDesks; one more, or a thread that cannot start, stops the process.
  StreamId add(std::unique_ptr<StreamWork> work, const CpuStreamOptions& options);
  void launch(StreamId stream, const Op& op) { at(raw(stream)).launch(op); }
  EventId record(StreamId stream);
  EventId record_polled(StreamId stream);
  void wait(StreamId stream, EventId event);
  [[nodiscard]] bool query(EventId event) const;
  void synchronize(EventId event);
  void set_listener(std::function<void()> on_event);

  // The stream that the event was recorded on.
  [[nodiscard]] static StreamId stream_of(EventId event);

 private:
  struct EventName {
    int32_t stream = 0;
    int64_t number = 0;
  };
  static EventId pack(const EventName& name);
  static EventName unpack(EventId event);
  [[nodiscard]] CpuStream& at(int32_t index) const {
    if (index < 0 || index >= count_.load(std::memory_order_acquire)) [[unlikely]] {
      no_stream(index);
    }
    return *streams_[static_cast<size_t>(index)];
  }
  [[noreturn]] static void no_stream(int32_t index);
  [[nodiscard]] CpuStream& at_recorded(const EventName& name) const;

  std::vector<std::unique_ptr<std::function<void()>>> listeners_;
  const std::function<void()>* listener_ = nullptr;  // given to each event when it is recorded
  std::array<std::unique_ptr<CpuStream>, WorkerPool::kMaxDesks> streams_;
  std::atomic<int32_t> count_{0};
};

}  // namespace tandem::device
