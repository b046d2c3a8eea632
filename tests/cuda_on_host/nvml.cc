// The part of NVML that src/device/cuda uses, played by the host: one GPU, at the place on the bus
// that the played CUDA names. A library by itself, opened at run time like the real library.
// NVML_ON_HOST=no_power leaves a reading out, as some GPUs do; NVML_ON_HOST=lost refuses to begin;
// with NVML_ON_HOST=silent only the first question after power is answered, the next one never.
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "device/cuda/nvml_api.h"

namespace tandem::device::cuda::nvml {
namespace {

constexpr Status kNotSupported = 3;
constexpr Status kNotFound = 6;
constexpr Status kDriverLost = 9;

int the_gpu = 0;
std::atomic<int> questions{0};  // after power, to a silent driver

bool asked(const char* for_what) {
  const char* text = std::getenv("NVML_ON_HOST");  // NOLINT(concurrency-mt-unsafe): nothing sets it
  return text != nullptr && std::strcmp(text, for_what) == 0;
}
Status check(Gpu gpu) { return gpu == reinterpret_cast<Gpu>(&the_gpu) ? kWell : kNotFound; }

}  // namespace

extern "C" {

bool nvml_on_host_keeps_a_thread() { return questions > 1; }

Status nvmlInit_v2() { return asked("lost") ? kDriverLost : kWell; }
Status nvmlShutdown() { return kWell; }
const char* nvmlErrorString(Status status) {
  return status == kDriverLost ? "Driver Not Loaded" : "another error";
}
Status nvmlDeviceGetHandleByPciBusId_v2(const char* pci, Gpu* gpu) {
  *gpu = reinterpret_cast<Gpu>(&the_gpu);
  return std::strcmp(pci, "0000:65:00.0") == 0 ? kWell : kNotFound;
}
Status nvmlDeviceGetUtilizationRates(Gpu gpu, Utilization* found) {
  *found = {.gpu = 87, .memory = 40};
  return check(gpu);
}
Status nvmlDeviceGetMemoryInfo(Gpu gpu, MemoryInfo* found) {
  *found = {.total = 1ULL << 34U, .free = 1ULL << 33U, .used = 1ULL << 33U};
  return check(gpu);
}
Status nvmlDeviceGetTemperature(Gpu gpu, int sensor, uint32_t* celsius) {
  *celsius = 54;
  return sensor == kTemperatureOfGpu ? check(gpu) : kNotSupported;
}
Status nvmlDeviceGetPowerUsage(Gpu gpu, uint32_t* milliwatts) {
  *milliwatts = 345678;
  if (asked("silent") && ++questions > 1) {
    questions.wait(2);
  }
  return asked("no_power") ? kNotSupported : check(gpu);
}
Status nvmlDeviceGetClockInfo(Gpu gpu, int which, uint32_t* megahertz) {
  *megahertz = 1755;
  return which == kClockOfProcessors ? check(gpu) : kNotSupported;
}
}

}  // namespace tandem::device::cuda::nvml
