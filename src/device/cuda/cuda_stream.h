// The streams of one GPU, the events recorded on them, and the pump: a thread that learns of
// completed events by asking the driver, so that nothing waits in it and no callback runs on a
// thread of its own.
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
#include <thread>
#include <vector>

#include "device/device.h"

namespace tandem::device::cuda {

// One stream; used by CudaStreams.
class CudaStream {
 public:
  CudaStream(int device, StreamKind kind);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void launch(const Op& op);  // issuing thread
  [[nodiscard]] cudaStream_t get() const { return stream_; }

 private:
  void upload(const UploadOp& op);
  void plan(const AttentionPlanOp& op);
  void attend(const AttentionOp& op);

  cudaStream_t stream_ = nullptr;
  std::array<AttentionBatch, kAttentionPlans> plans_;
  void* upload_room_ = nullptr;  // device memory for the rows of a checkpoint on their way
};

class CudaStreams {
 public:
  static constexpr int32_t kMaxStreams = 64;

  explicit CudaStreams(int device);
  ~CudaStreams();  // after everything that was launched
  CudaStreams(const CudaStreams&) = delete;
  CudaStreams& operator=(const CudaStreams&) = delete;

  StreamId add(StreamKind kind);
  void launch(StreamId stream, const Op& op);
  EventId record(StreamId stream, bool notifies);
  void wait(StreamId stream, EventId event);
  [[nodiscard]] bool query(EventId event) const;
  void synchronize(EventId event);
  void set_listener(std::function<void()> on_event);

 private:
  struct Pending {
    int64_t number = 0;
    cudaEvent_t event = nullptr;
    const std::function<void()>* listener = nullptr;  // null: nobody is told
  };
  // Of a stream. `pending`, oldest first, is guarded by mutex_.
  struct Line {
    std::unique_ptr<CudaStream> stream;
    std::deque<Pending> pending;
    int64_t recorded = 0;               // issuing thread
    std::atomic<int64_t> completed{0};  // the number of the last completed event
    std::atomic<int64_t> settled{0};    // the same once the listener's call has returned
  };

  [[nodiscard]] Line& line(StreamId stream) const;
  [[nodiscard]] static int64_t number_of(EventId event);
  [[nodiscard]] static StreamId stream_of(EventId event);
  static const Pending* find(const Line& line, EventId event);
  cudaEvent_t take_event();  // mutex_ held
  void pump();
  bool complete_some();  // pump

  const int device_;
  std::array<std::unique_ptr<Line>, kMaxStreams> lines_;
  std::atomic<int32_t> line_count_{0};
  mutable std::mutex mutex_;
  std::vector<cudaEvent_t> spare_events_;        // mutex_
  std::deque<std::function<void()>> listeners_;  // mutex_; the last one is current
  int64_t pending_ = 0;                          // mutex_: in all lines
  bool ending_ = false;                          // mutex_
  std::condition_variable work_;                 // for the pump: pending_ or ending_
  std::condition_variable settled_;              // some line's `settled` has risen
  std::thread pump_;                             // last: uses all of the above
};

}  // namespace tandem::device::cuda
