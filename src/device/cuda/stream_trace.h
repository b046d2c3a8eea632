// When the ops of a stream ran on the GPU, for a timeline: an event before and one behind each op,
// whose distance the GPU measures. The GPU counts from an event that it passed at a known time of
// the machine's clock. The clocks drift apart, so once a second, or at the first op after a longer
// pause, the times are moved by the least time from an op's end to its being seen by the pump, at
// most by the drift that is possible: they are as late as a pause of the pump.
//
// Threads: begin(), end(), around() and marks() by the thread that launches on the stream; show()
// by the pump. Calls return CUDA's error.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "device/op_queries.h"
#include "observe/timeline.h"

namespace tandem::device::cuda {

class StreamTrace {
 public:
  // Ops whose end is not known to have passed; beyond them ops are left out.
  static constexpr size_t kMaxMarks = 8192;

  StreamTrace(observe::Track& track, const Clock& clock) : track_(track), clock_(clock) {}
  ~StreamTrace() = default;  // after close(), unless the GPU has failed
  StreamTrace(const StreamTrace&) = delete;
  StreamTrace& operator=(const StreamTrace&) = delete;

  cudaError_t open(cudaStream_t stream);  // waits for the stream
  cudaError_t begin();
  cudaError_t end(const OpLabel& label);
  // Launches the op in between.
  template <class Launch>
  cudaError_t around(const OpLabel& label, Launch launch) {
    cudaError_t error = begin();
    error = error == cudaSuccess ? launch() : error;
    return error == cudaSuccess ? end(label) : error;
  }
  [[nodiscard]] int64_t marks() const { return marked_; }
  // Adds the spans of the first `marks` ops, all of which the stream has passed.
  cudaError_t show(int64_t marks);
  cudaError_t close();  // once the stream is used no more

 private:
  struct Mark {
    OpLabel label;
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
  };

  cudaError_t take(cudaEvent_t& event);
  cudaError_t add(const Mark& mark);
  void give_back(cudaEvent_t event);

  observe::Track& track_;
  const Clock& clock_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begun_ = nullptr;  // launching thread; null: this op is left out
  int64_t marked_ = 0;           // launching thread
  // The pump's.
  cudaEvent_t origin_ = nullptr;
  double origin_nanos_ = 0;    // machine's clock when the stream passed `origin_`
  double last_nanos_ = 0;      // end of the last span
  std::optional<double> lag_;  // the least time from a span's end to its being seen
  int64_t shown_ = 0;

  std::mutex mutex_;  // guards the rest
  std::deque<Mark> passing_;
  std::vector<cudaEvent_t> spare_;
};

}  // namespace tandem::device::cuda
