#include "device/cuda/probe.h"

#include <fmt/format.h>

#include <charconv>

#include "base/units.h"

namespace tandem::device::cuda {
namespace {

constexpr int kFirstMajor = 8;  // kernels are compiled for sm_80 and up

Error unavailable(std::string reason) {
  return {ErrorCode::kUnavailable, "cuda: absent: " + std::move(reason), "device"};
}

}  // namespace

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Result<int> gpu_index(std::string_view options) {
  int index = 0;
  if (options.empty()) {
    return index;
  }
  const char* end = options.data() + options.size();
  const auto [stop, error] = std::from_chars(options.data(), end, index);
  if (error != std::errc() || stop != end || index < 0) {
    return invalid_argument(
        fmt::format("'{}' does not name a GPU: give its number, as in cuda:0", options), "device");
  }
  return index;
}

Error absent(cudaError_t error, int driver) {
  switch (error) {
    case cudaErrorInsufficientDriver:
      if (driver == 0) {
        return unavailable(
            "no NVIDIA driver is loaded (libcuda.so.1 is missing or its module is not); install "
            "one that knows CUDA 13 (580 or newer) until nvidia-smi lists the GPU, in a container "
            "start it with the GPU (docker run --gpus all), or use --device cpu");
      }
      return unavailable(fmt::format(
          "the NVIDIA driver is too old: it knows CUDA {}, this program needs {}; update the "
          "driver to 580 or newer",
          version_text(driver), version_text(CUDART_VERSION)));
    case cudaErrorNoDevice:
      return unavailable(
          "the NVIDIA driver sees no GPU; look at nvidia-smi, and at CUDA_VISIBLE_DEVICES, which "
          "must not be empty");
    case cudaErrorDevicesUnavailable:
      return unavailable(
          "the GPU is in use by another process that has it to itself, or in prohibited mode; "
          "nvidia-smi shows which, and nvidia-smi -c 0 lets it be shared");
    case cudaErrorMemoryAllocation:
      return unavailable(
          "the GPU's memory is full before anything was loaded; nvidia-smi shows which processes "
          "hold it: end them or choose another GPU with cuda:N");
    case cudaErrorSystemNotReady:
      return unavailable(
          "the system is not ready: on machines with NVSwitch start nvidia-fabricmanager, of the "
          "driver's version");
    default:
      return unavailable(fmt::format("{} ({}, CUDA error {}); nvidia-smi may say more",
                                     cudaGetErrorString(error), cudaGetErrorName(error),
                                     static_cast<int>(error)));
  }
}

Result<Gpu> probe(int index) {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) {
    driver = 0;
  }
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    return absent(error, driver);
  }
  if (index >= count) {
    return unavailable(
        fmt::format("there is no GPU {}: this machine has {}, numbered from 0", index, count));
  }
  cudaDeviceProp properties = {};
  size_t free = 0;
  size_t total = 0;
  for (const cudaError_t error : {cudaGetDeviceProperties(&properties, index), cudaSetDevice(index),
                                  cudaMemGetInfo(&free, &total)}) {
    if (error != cudaSuccess) {
      return absent(error, driver);
    }
  }
  if (properties.major < kFirstMajor) {
    return unavailable(fmt::format(
        "{} has compute capability {}.{}, the kernels need 8.0 (A100) or newer; use --device cpu",
        properties.name, properties.major, properties.minor));
  }
  return Gpu{.index = index,
             .name = properties.name,
             .major = properties.major,
             .minor = properties.minor,
             .memory_bytes = static_cast<int64_t>(total),
             .free_bytes = static_cast<int64_t>(free)};
}

Result<std::string> describe_gpu(const std::string& options) {
  ASSIGN_OR_RETURN(const int index, gpu_index(options));
  ASSIGN_OR_RETURN(const Gpu gpu, probe(index));
  return fmt::format("cuda:{}: {}, sm_{}{}, {} free of {}", index, gpu.name, gpu.major, gpu.minor,
                     format_bytes(gpu.free_bytes), format_bytes(gpu.memory_bytes));
}

}  // namespace tandem::device::cuda
