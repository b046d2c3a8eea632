#include "device/cuda/gpu_timer.h"

#include <thread>

namespace tandem::device::cuda {

cudaError_t GpuTimer::open(cudaStream_t stream, std::chrono::milliseconds patience) {
  stream_ = stream;
  patience_ = patience;
  const cudaError_t error = cudaEventCreateWithFlags(&begin_, 0);
  return error == cudaSuccess ? cudaEventCreateWithFlags(&end_, 0) : error;
}

cudaError_t GpuTimer::close() {
  for (const cudaEvent_t event : {begin_, end_}) {
    const cudaError_t error = event == nullptr ? cudaSuccess : cudaEventDestroy(event);
    if (error != cudaSuccess) {
      return error;
    }
  }
  return cudaSuccess;
}

cudaError_t GpuTimer::begin() { return cudaEventRecord(begin_, stream_); }

cudaError_t GpuTimer::wait() {
  cudaError_t error = cudaEventRecord(end_, stream_);
  const auto end = std::chrono::steady_clock::now() + patience_;
  while (error == cudaSuccess && (error = cudaEventQuery(end_)) == cudaErrorNotReady) {
    if (std::chrono::steady_clock::now() > end) {
      return cudaErrorLaunchTimeout;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    error = cudaSuccess;
  }
  return error;
}

cudaError_t GpuTimer::end(double& us) {
  cudaError_t error = wait();
  float millis = 0;
  if (error == cudaSuccess) {
    error = cudaEventElapsedTime(&millis, begin_, end_);
  }
  us = static_cast<double>(millis) * 1e3;
  return error;
}

}  // namespace tandem::device::cuda
