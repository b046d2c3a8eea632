// Over the NVML that the host plays (tests/cuda_on_host/nvml.cc).
#include "device/cuda/gpu_sensors.h"

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <thread>

namespace tandem::device::cuda {
namespace {

class Sensors : public testing::Test {
 protected:
  Sensors() { set(GpuSensors::kSensorsVariable, NVML_LIBRARY_ON_HOST); }
  ~Sensors() override {
    ::unsetenv(GpuSensors::kSensorsVariable);
    ::unsetenv("NVML_ON_HOST");
  }
  static void set(const char* name, const char* value) { ::setenv(name, value, 1); }
};

TEST_F(Sensors, TellWhatTheDriverSays) {
  const GpuSensors sensors(0);
  EXPECT_EQ(sensors.absent(), "");
  const observe::AcceleratorReadings found = sensors.readings();
  EXPECT_EQ(found.device, "cuda:0");
  EXPECT_EQ(found.memory_bytes, int64_t{1} << 34);
  EXPECT_EQ(found.memory_used_bytes, int64_t{1} << 33);
  EXPECT_DOUBLE_EQ(found.busy_share.value(), 0.87);
  EXPECT_DOUBLE_EQ(found.memory_busy_share.value(), 0.4);
  EXPECT_EQ(found.temperature_celsius, 54);
  EXPECT_DOUBLE_EQ(found.power_watts.value(), 345.678);
  EXPECT_DOUBLE_EQ(found.clock_hertz.value(), 1.755e9);
}

TEST_F(Sensors, LeaveOutWhatAGpuDoesNotMeasure) {
  set("NVML_ON_HOST", "no_power");
  const observe::AcceleratorReadings found = GpuSensors(0).readings();
  EXPECT_FALSE(found.power_watts.has_value());
  EXPECT_EQ(found.temperature_celsius, 54);
}

TEST_F(Sensors, EndWithoutTheAnswerOfADriverThatIsSilent) {
  void* library = ::dlopen(NVML_LIBRARY_ON_HOST, RTLD_NOW);
  ASSERT_NE(library, nullptr);
  const auto keeps_a_thread =
      reinterpret_cast<bool (*)()>(::dlsym(library, "nvml_on_host_keeps_a_thread"));
  set("NVML_ON_HOST", "silent");
  const GpuSensors sensors(0);
  while (!keeps_a_thread()) {
    std::this_thread::yield();
  }
  EXPECT_EQ(sensors.readings().temperature_celsius, 54);
}

TEST_F(Sensors, SayWhyNothingIsTold) {
  set("NVML_ON_HOST", "lost");
  const GpuSensors refused(0);
  EXPECT_THAT(refused.absent(), testing::HasSubstr("Driver Not Loaded"));
  EXPECT_EQ(accelerator_metrics_text(refused.readings()), "");
  set(GpuSensors::kSensorsVariable, "/nowhere/libnvidia-ml.so.1");
  EXPECT_THAT(GpuSensors(0).absent(), testing::HasSubstr("/nowhere/"));
  set(GpuSensors::kSensorsVariable, CUBLASLT_ON_HOST);
  EXPECT_THAT(GpuSensors(0).absent(), testing::HasSubstr("has no nvmlInit_v2"));
}

}  // namespace
}  // namespace tandem::device::cuda
