// Readings of a GPU by NVML, which comes with the driver and is found at run time. Without it they
// are empty. A thread of its own asks once a second, because an answer may take
// the driver milliseconds. Threads: any.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "base/result.h"
#include "device/cuda/nvml_api.h"
#include "observe/accelerator_metrics.h"

namespace tandem::device::cuda {

class GpuSensors {
 public:
  // kSensorsVariable names NVML's file; otherwise the dynamic linker finds it.
  static constexpr const char* kSensorsVariable = "TANDEM_NVML";

  // Of the GPU that CUDA gives this index; readings stay empty if NVML cannot be used.
  explicit GpuSensors(int index);
  ~GpuSensors();
  GpuSensors(const GpuSensors&) = delete;
  GpuSensors& operator=(const GpuSensors&) = delete;

  // Of the last second.
  [[nodiscard]] observe::AcceleratorReadings readings() const;
  // Why they are empty; "": they are not.
  [[nodiscard]] const std::string& absent() const { return absent_; }

 private:
  std::string open(int index);  // "" or what went wrong
  [[nodiscard]] observe::AcceleratorReadings ask() const;
  void keep_asking();

  nvml::Functions functions_ = {};
  nvml::Gpu gpu_ = nullptr;
  bool begun_ = false;
  const std::string device_;
  const std::string absent_;
  mutable std::mutex mutex_;
  observe::AcceleratorReadings last_;  // mutex_
  bool ending_ = false;                // mutex_
  std::condition_variable end_;
  std::thread asks_;  // last: uses all of the above
};

}  // namespace tandem::device::cuda
