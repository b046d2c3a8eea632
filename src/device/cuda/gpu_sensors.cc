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

GpuSensors::GpuSensors(int index) : absent_(open(index)) {
  const std::string device = fmt::format("cuda:{}", index);
  asked_->last.device = device;
  if (absent_.empty()) {
    asked_->last = ask(*asked_, device);
    asks_ = std::thread([asked = asked_, device] { keep_asking(*asked, device); });
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
  std::memcpy(&asked_->functions, symbols, sizeof(symbols));
  const auto said = [&](nvml::Status status) {
    return fmt::format("{}: {}", file, asked_->functions.error_string(status));
  };
  if (const nvml::Status status = asked_->functions.init(); status != nvml::kWell) {
    return said(status);
  }
  asked_->begun = true;
  char pci[32] = {};  // CUDA and NVML count GPUs in different orders
  if (const cudaError_t error = cudaDeviceGetPCIBusId(pci, sizeof(pci), index);
      error != cudaSuccess) {
    return fmt::format("its place on the bus is unknown: {}", cudaGetErrorString(error));
  }
  const nvml::Status status = asked_->functions.gpu_by_pci(pci, &asked_->gpu);
  return status == nvml::kWell ? "" : said(status);
}

GpuSensors::Asked::~Asked() {
  if (begun) {
    functions.shutdown();
  }
}

GpuSensors::~GpuSensors() {
  if (!absent_.empty()) {
    return;
  }
  std::unique_lock lock(asked_->mutex);
  asked_->ending = true;
  asked_->changed.notify_all();
  const bool ended = asked_->changed.wait_for(lock, kPatience, [this] { return asked_->ended; });
  lock.unlock();
  if (ended) {
    asks_.join();
  } else {
    asks_.detach();
  }
}

observe::AcceleratorReadings GpuSensors::readings() const {
  const std::lock_guard lock(asked_->mutex);
  return asked_->last;
}

void GpuSensors::keep_asking(Asked& asked, const std::string& device) {
  std::unique_lock lock(asked.mutex);
  while (!asked.changed.wait_for(lock, kInterval, [&] { return asked.ending; })) {
    lock.unlock();
    observe::AcceleratorReadings found = ask(asked, device);
    lock.lock();
    asked.last = std::move(found);
  }
  asked.ended = true;
  asked.changed.notify_all();
}

observe::AcceleratorReadings GpuSensors::ask(const Asked& asked, const std::string& device) {
  const nvml::Functions& driver = asked.functions;
  observe::AcceleratorReadings found{.device = device};
  if (nvml::MemoryInfo memory; driver.memory(asked.gpu, &memory) == nvml::kWell) {
    found.memory_bytes = static_cast<int64_t>(memory.total);
    found.memory_used_bytes = static_cast<int64_t>(memory.used);
  }
  if (nvml::Utilization busy; driver.utilization(asked.gpu, &busy) == nvml::kWell) {
    found.busy_share = busy.gpu * kPercent;
    found.memory_busy_share = busy.memory * kPercent;
  }
  uint32_t value = 0;
  if (driver.temperature(asked.gpu, nvml::kTemperatureOfGpu, &value) == nvml::kWell) {
    found.temperature_celsius = value;
  }
  if (driver.power(asked.gpu, &value) == nvml::kWell) {
    found.power_watts = value * kMilli;
  }
  if (driver.clock(asked.gpu, nvml::kClockOfProcessors, &value) == nvml::kWell) {
    found.clock_hertz = value * kMega;
  }
  return found;
}

}  // namespace tandem::device::cuda
