#include "device/cuda/gpu_health.h"

#include <fmt/format.h>

namespace tandem::device::cuda {
namespace {

const char* cure(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
      return "The GPU's memory is broken at some place: 'nvidia-smi -q -d ECC,ROW_REMAPPER' shows "
             "whether it must be reset or replaced; then start the server again, or on another GPU "
             "with --device cuda:N";
    case cudaErrorMemoryAllocation:
      return "Another process may have taken the memory: see nvidia-smi, and start the server "
             "again with a smaller --device-memory";
    default:
      return "Start the server again; if this happens again, look for 'Xid' in the kernel log "
             "(dmesg)";
  }
}

}  // namespace

Error gpu_failure(cudaError_t error, std::string_view doing) {
  return {ErrorCode::kUnavailable,
          fmt::format("the GPU failed while {}: {} ({}, CUDA error {}), and the contents of its "
                      "memory are lost. {}",
                      doing, cudaGetErrorString(error), cudaGetErrorName(error),
                      static_cast<int>(error), cure(error)),
          "device"};
}

bool GpuHealth::ok(cudaError_t error, std::string_view doing) {
  if (error == cudaSuccess && !failed()) {
    return true;
  }
  const std::lock_guard lock(mutex_);
  if (!failed()) {
    failure_ = gpu_failure(error, doing);
    failed_.store(true, std::memory_order_release);
  }
  return false;
}

}  // namespace tandem::device::cuda
