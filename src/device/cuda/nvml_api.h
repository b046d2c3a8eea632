// The part of NVML's C interface that the back end uses, under names of its own: the library is
// found at run time, so the build does not need its header. Values, sizes and signatures follow
// NVML 13; they are the same since NVML 4.
#pragma once

#include <cstdint>

namespace tandem::device::cuda::nvml {

using Status = int;  // kWell, or an error that errorString names
inline constexpr Status kWell = 0;
inline constexpr int kTemperatureOfGpu = 0;
inline constexpr int kClockOfProcessors = 1;

using Gpu = struct GpuHandle*;

struct Utilization {  // percent
  uint32_t gpu = 0;
  uint32_t memory = 0;
};
struct MemoryInfo {  // bytes
  unsigned long long total = 0;
  unsigned long long free = 0;
  unsigned long long used = 0;
};

// In the order of kFunctionNames.
struct Functions {
  Status (*init)() = nullptr;
  Status (*shutdown)() = nullptr;
  const char* (*error_string)(Status) = nullptr;
  Status (*gpu_by_pci)(const char* pci, Gpu* gpu) = nullptr;
  Status (*utilization)(Gpu gpu, Utilization* found) = nullptr;
  Status (*memory)(Gpu gpu, MemoryInfo* found) = nullptr;
  Status (*temperature)(Gpu gpu, int sensor, uint32_t* celsius) = nullptr;
  Status (*power)(Gpu gpu, uint32_t* milliwatts) = nullptr;
  Status (*clock)(Gpu gpu, int which, uint32_t* megahertz) = nullptr;
};
inline constexpr const char* kFunctionNames[] = {"nvmlInit_v2",
                                                 "nvmlShutdown",
                                                 "nvmlErrorString",
                                                 "nvmlDeviceGetHandleByPciBusId_v2",
                                                 "nvmlDeviceGetUtilizationRates",
                                                 "nvmlDeviceGetMemoryInfo",
                                                 "nvmlDeviceGetTemperature",
                                                 "nvmlDeviceGetPowerUsage",
                                                 "nvmlDeviceGetClockInfo"};
static_assert(sizeof(Functions) == sizeof(kFunctionNames));

}  // namespace tandem::device::cuda::nvml
