// The streams of one GPU, the events recorded on them, and the pump: a thread that learns of
// completed events by asking the driver, so that nothing waits in it and no callback runs on a
// thread of its own.
//
// When a call of CUDA fails, `health` notes it, and the pump ends everything that is pending:
// device.h says what holds from then on.
//
// Threads: as device.h says. The listener is called by the pump alone.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "device/cuda/cuda_ops.h"
#include "device/cuda/cuda_stream.h"
#include "device/cuda/gpu_health.h"
#include "device/cuda/stream_trace.h"
#include "device/device.h"

namespace tandem::device::cuda {

class CudaStreams {
 public:
  static constexpr int32_t kMaxStreams = 64;
  static constexpr int64_t kUploadBytes = int64_t{16} << 20;
  static constexpr size_t kUploadPieces = 4;
  static constexpr int64_t kProductBytes = LibraryProducts::kWorkspaceBytes + (int64_t{64} << 20);
  // Device memory of its own.
  static int64_t own_bytes(const Libraries& libraries) {
    return kUploadBytes + kSampleRoomBytes + (libraries.products != nullptr ? kProductBytes : 0) +
           (libraries.attention ? PlanRoom::kDeviceBytes : 0);
  }

  // Its own memory begins at `own`, aligned to 256 bytes. `health` and the timeline must outlive
  // it; null: nothing is recorded.
  CudaStreams(int device, GpuHealth& health, std::byte* own, Libraries libraries,
              observe::Timeline* timeline);
  ~CudaStreams();  // after everything that was launched, unless the GPU has failed
  CudaStreams(const CudaStreams&) = delete;
  CudaStreams& operator=(const CudaStreams&) = delete;

  StreamId add(StreamKind kind);
  void launch(StreamId stream, const Op& op);
  EventId record(StreamId stream, bool notifies);
  void wait(StreamId stream, EventId event);
  [[nodiscard]] bool query(EventId event) const;
  void synchronize(EventId event);
  void set_listener(std::function<void()> on_event);
  // As device/tuning.h says. Graphs are forgotten: the library does not see their products, and
  // they hold its algorithms.
  [[nodiscard]] bool tunes() const { return timed_algorithms_; }
  void note_products();
  Result<std::vector<TunedChoice>> tune(Nanos limit);
  void use(std::span<const TunedChoice> choices) const { rooms_.library->use(choices); }
  // Notes an error; whether there was none.
  bool note(cudaError_t error, std::string_view doing) const;

 private:
  struct Pending {
    int64_t number = 0;
    cudaEvent_t event = nullptr;
    const std::function<void()>* listener = nullptr;  // null: no listener is called
    int64_t marks = 0;  // that the trace had when the event was recorded
  };
  // A stream and its events. `pending` begins with the oldest; mutex_ guards it.
  struct Line {
    Line(StreamRooms& rooms, bool graphs) : stream(rooms, graphs) {}
    CudaStream stream;
    std::unique_ptr<StreamTrace> trace;  // null: no timeline is written
    std::deque<Pending> pending;
    int64_t recorded = 0;               // issuing thread
    std::atomic<int64_t> completed{0};  // the number of the last completed event
    std::atomic<int64_t> settled{0};    // the same once the listener's call has returned
  };

  [[nodiscard]] Line& line(StreamId stream) const;
  [[nodiscard]] static int64_t number_of(EventId event);
  [[nodiscard]] static StreamId stream_of(EventId event);
  cudaError_t open_trace(Line& own, StreamKind kind);
  bool forget_graphs();
  // Before anything that must come behind it.
  bool launch_held(Line& own);
  static const Pending* find(const Line& line, EventId event);
  bool use_device() const;
  cudaError_t record_on(Line& own, int64_t number, bool notifies);
  void pump();
  bool complete_some();  // pump
  void give_up();        // pump

  const int device_;
  GpuHealth& health_;
  observe::Timeline* const timeline_;
  const SteadyClock clock_;
  StreamRooms rooms_;
  const bool timed_algorithms_;
  const bool graphs_;  // no timeline is written: it shows each op
  std::array<std::unique_ptr<Line>, kMaxStreams> lines_;
  std::atomic<int32_t> line_count_{0};
  mutable std::mutex mutex_;
  std::vector<cudaEvent_t> spare_events_;        // mutex_
  std::deque<std::function<void()>> listeners_;  // mutex_; the last one is current
  int64_t pending_ = 0;                          // mutex_: in all lines
  bool ending_ = false;                          // mutex_
  bool given_up_ = false;                        // mutex_: after a failure
  mutable std::condition_variable work_;         // for the pump: pending_, ending_ or a failure
  std::condition_variable settled_;              // some line's `settled` has risen, or given_up_
  std::thread pump_;                             // last: uses all of the above
};

}  // namespace tandem::device::cuda
