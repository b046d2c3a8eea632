// Device memory that the streams of a GPU use in turn, each behind the work of the
// stream before. Taken once, so that nothing is allocated later.
//
// A stream that is captured must have the room before, and no other stream may ask for it then.
//
// Threads: any; a holder keeps the others out while it launches, not while that runs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <mutex>

namespace tandem::device::cuda {

class SharedRoom {
 public:
  SharedRoom() = default;
  // Before it is held. Returns the end of the memory.
  std::byte* place(std::byte* data, int64_t bytes) {
    data_ = data;
    bytes_ = bytes;
    return data + bytes;
  }
  [[nodiscard]] int64_t bytes() const { return bytes_; }
  [[nodiscard]] std::byte* data() const { return data_; }  // a holder's
  // Once no stream uses it any more.
  cudaError_t end() { return passed_ == nullptr ? cudaSuccess : cudaEventDestroy(passed_); }

  // What `stream` gets while this lives has the room to itself. If error() is not cudaSuccess,
  // nothing may be launched.
  class Hold {
   public:
    Hold(SharedRoom& room, cudaStream_t stream)
        : room_(room), lock_(room.mutex_), error_(room.order(stream)) {}
    [[nodiscard]] std::byte* data() const { return room_.data(); }
    [[nodiscard]] cudaError_t error() const { return error_; }

   private:
    SharedRoom& room_;
    const std::lock_guard<std::mutex> lock_;
    const cudaError_t error_;
  };

 private:
  cudaError_t order(cudaStream_t stream);

  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  std::mutex mutex_;  // guards the members below
  cudaStream_t last_ = nullptr;
  cudaEvent_t passed_ = nullptr;  // null: one stream alone has held it
};

}  // namespace tandem::device::cuda
