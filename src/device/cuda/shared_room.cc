#include "device/cuda/shared_room.h"

namespace tandem::device::cuda {

// Behind everything that the stream before has been given.
cudaError_t SharedRoom::order(cudaStream_t stream) {
  if (last_ == nullptr || last_ == stream) {
    last_ = stream;
    return cudaSuccess;
  }
  cudaError_t error = cudaSuccess;
  if (passed_ == nullptr) {
    error = cudaEventCreateWithFlags(&passed_, cudaEventDisableTiming);
  }
  if (error == cudaSuccess) {
    error = cudaEventRecord(passed_, last_);
  }
  if (error == cudaSuccess) {
    error = cudaStreamWaitEvent(stream, passed_, 0);
  }
  last_ = stream;
  return error;
}

}  // namespace tandem::device::cuda
