#include "device/cuda/pinned_ring.h"

#include <thread>

namespace tandem::device::cuda {

cudaError_t PinnedRing::take(size_t pieces, int64_t piece_bytes) {
  void* begin = nullptr;
  const cudaError_t error =
      cudaHostAlloc(&begin, pieces * static_cast<size_t>(piece_bytes), cudaHostAllocPortable);
  if (error == cudaSuccess) {
    begin_ = static_cast<std::byte*>(begin);
    piece_bytes_ = piece_bytes;
    passed_.resize(pieces);
  }
  return error;
}

std::byte* PinnedRing::next(cudaError_t& error) {
  cudaEvent_t& event = passed_[next_];
  if (event == nullptr) {
    error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  } else {
    while ((error = cudaEventQuery(event)) == cudaErrorNotReady) {
      std::this_thread::yield();
    }
  }
  return error == cudaSuccess ? begin_ + static_cast<int64_t>(next_) * piece_bytes_ : nullptr;
}

cudaError_t PinnedRing::passed(cudaStream_t stream) {
  const cudaError_t error = cudaEventRecord(passed_[next_], stream);
  next_ = (next_ + 1) % passed_.size();
  return error;
}

cudaError_t PinnedRing::end() {
  cudaError_t error = cudaSuccess;
  for (const cudaEvent_t event : passed_) {
    if (event != nullptr && error == cudaSuccess) {
      error = cudaEventDestroy(event);
    }
  }
  return error == cudaSuccess && begin_ != nullptr ? cudaFreeHost(begin_) : error;
}

}  // namespace tandem::device::cuda
