// Readings of a GPU by NVML, which comes with the driver and is found at run time. Without it they
// are empty. A thread of its own asks once a second, because an answer may take the driver
// milliseconds; from a GPU that has failed it may never come, and then that thread is left behind.
// Threads: any.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/result.h"
#include "device/cuda/nvml_api.h"
#include "observe/accelerator_metrics.h"

namespace tandem::device::cuda {

class GpuSensors {
 public:
  // kSensorsVariable names NVML's file; otherwise the dynamic linker finds it.
  static constexpr const char* kSensorsVariable = "TANDEM_NVML";
  // The destructor waits no longer for an answer.
  static constexpr Nanos kPatience = std::chrono::seconds(1);

  // `index`: the GPU's number as CUDA counts. Readings stay empty if NVML cannot be used.
  explicit GpuSensors(int index);
  ~GpuSensors();
  GpuSensors(const GpuSensors&) = delete;
  GpuSensors& operator=(const GpuSensors&) = delete;

  // They are at most a second old, plus the time that the driver takes to answer.
  [[nodiscard]] observe::AcceleratorReadings readings() const;
  // Why they are empty; "": they are not.
  [[nodiscard]] const std::string& absent() const { return absent_; }

 private:
  // Shared with the thread that asks.
  struct Asked {
    ~Asked();  // by the last owner

    nvml::Functions functions = {};
    nvml::Gpu gpu = nullptr;
    bool begun = false;  // NVML must be shut down
    std::mutex mutex;    // guards the rest
    observe::AcceleratorReadings last;
    bool ending = false;
    bool ended = false;  // the thread asks no more
    std::condition_variable changed;
  };

  std::string open(int index);  // "" or what went wrong
  static observe::AcceleratorReadings ask(const Asked& asked, const std::string& device);
  static void keep_asking(Asked& asked, const std::string& device);

  const std::shared_ptr<Asked> asked_ = std::make_shared<Asked>();
  const std::string absent_;
  std::thread asks_;
};

}  // namespace tandem::device::cuda
