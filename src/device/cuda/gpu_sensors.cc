#include "device/cuda/gpu_sensors.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

namespace tandem::device::cuda {
namespace {

constexpr double kPercent = 0.01;
constexpr double kMilli = 1e-3;
constexpr double kMega = 1e6;
constexpr auto kInterval = std::chrono::seconds(1);

}  // namespace

GpuSensors::GpuSensors(int index)
    : device_(fmt::format("cuda:{}", index)), absent_(open(index)), last_{.device = device_} {
  if (absent_.empty()) {
    last_ = ask();
    asks_ = std::thread([this] { keep_asking(); });
  }
}

std::string GpuSensors::open(int index) {
  const char* named =
      std::getenv(kSensorsVariable);  // NOLINT(concurrency-mt-unsafe): nothing sets it
  const char* file = named == nullptr || *named == '\0' ? "libnvidia-ml.so.1" : named;
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return dlerror();
  }
  void* symbols[std::size(nvml::kFunctionNames)];
  for (size_t i = 0; i < std::size(symbols); ++i) {
    symbols[i] = dlsym(library, nvml::kFunctionNames[i]);
    if (symbols[i] == nullptr) {
      return fmt::format("{} has no {}", file, nvml::kFunctionNames[i]);
    }
  }
  std::memcpy(&functions_, symbols, sizeof(symbols));
  const auto said = [&](nvml::Status status) {
    return fmt::format("{}: {}", file, functions_.error_string(status));
  };
  if (const nvml::Status status = functions_.init(); status != nvml::kWell) {
    return said(status);
  }
  begun_ = true;
  char pci[32] = {};  // CUDA and NVML count GPUs in different orders
  if (const cudaError_t error = cudaDeviceGetPCIBusId(pci, sizeof(pci), index);
      error != cudaSuccess) {
    return fmt::format("its place on the bus is unknown: {}", cudaGetErrorString(error));
  }
  const nvml::Status status = functions_.gpu_by_pci(pci, &gpu_);
  return status == nvml::kWell ? "" : said(status);
}

GpuSensors::~GpuSensors() {
  if (asks_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    end_.notify_one();
    asks_.join();
  }
  if (begun_) {
    functions_.shutdown();
  }
}

observe::AcceleratorReadings GpuSensors::readings() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

void GpuSensors::keep_asking() {
  std::unique_lock lock(mutex_);
  while (!end_.wait_for(lock, kInterval, [this] { return ending_; })) {
    lock.unlock();
    observe::AcceleratorReadings found = ask();
    lock.lock();
    last_ = std::move(found);
  }
}

observe::AcceleratorReadings GpuSensors::ask() const {
  observe::AcceleratorReadings found{.device = device_};
  if (nvml::MemoryInfo memory; functions_.memory(gpu_, &memory) == nvml::kWell) {
    found.memory_bytes = static_cast<int64_t>(memory.total);
    found.memory_used_bytes = static_cast<int64_t>(memory.used);
  }
  if (nvml::Utilization busy; functions_.utilization(gpu_, &busy) == nvml::kWell) {
    found.busy_share = busy.gpu * kPercent;
    found.memory_busy_share = busy.memory * kPercent;
  }
  uint32_t value = 0;
  if (functions_.temperature(gpu_, nvml::kTemperatureOfGpu, &value) == nvml::kWell) {
    found.temperature_celsius = value;
  }
  if (functions_.power(gpu_, &value) == nvml::kWell) {
    found.power_watts = value * kMilli;
  }
  if (functions_.clock(gpu_, nvml::kClockOfProcessors, &value) == nvml::kWell) {
    found.clock_hertz = value * kMega;
  }
  return found;
}

}  // namespace tandem::device::cuda
