#include "device/cuda/probe.h"

#include <gmock/gmock.h>

#include "device/cuda/cuda_device.h"

namespace tandem::device::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Probe : public testing::Test {
 protected:
  ~Probe() override { cuda_on_host::pretend({}); }
  static std::string message(int index = 0) {
    const Result<Gpu> gpu = probe(index);
    return gpu.ok() ? "found " + gpu->name : gpu.error().message;
  }
};

TEST_F(Probe, AGpuIsFoundWithItsMemory) {
  const Result<Gpu> gpu = probe(0);
  ASSERT_TRUE(gpu.ok());
  EXPECT_EQ(gpu->major, 9);
  EXPECT_EQ(gpu->memory_bytes, int64_t{16} << 30);
  EXPECT_EQ(gpu->free_bytes, int64_t{15} << 30);
}

TEST_F(Probe, EveryReasonComesWithItsCure) {
  cuda_on_host::pretend({.driver = 0, .error = cudaErrorInsufficientDriver});
  EXPECT_THAT(message(), AllOf(HasSubstr("absent: no NVIDIA driver"), HasSubstr("--gpus all")));
  cuda_on_host::pretend({.driver = 12040, .error = cudaErrorInsufficientDriver});
  EXPECT_THAT(message(), AllOf(HasSubstr("knows CUDA 12.4"), HasSubstr("580 or newer")));
  cuda_on_host::pretend({.error = cudaErrorNoDevice});
  EXPECT_THAT(message(), HasSubstr("CUDA_VISIBLE_DEVICES"));
  cuda_on_host::pretend({.error = cudaErrorDevicesUnavailable});
  EXPECT_THAT(message(), HasSubstr("nvidia-smi -c 0"));
  cuda_on_host::pretend({.error = cudaErrorECCUncorrectable});
  EXPECT_THAT(message(), AllOf(HasSubstr("uncorrectable ECC"), HasSubstr("CUDA error 214")));
  cuda_on_host::pretend({.gpus = 2});
  EXPECT_THAT(message(1), HasSubstr("found"));
  EXPECT_THAT(message(2), HasSubstr("there is no GPU 2: this machine has 2"));
  cuda_on_host::pretend({.major = 7, .minor = 5});
  EXPECT_THAT(message(), AllOf(HasSubstr("7.5"), HasSubstr("8.0 (A100)")));
}

TEST_F(Probe, AnAbsentGpuIsUnavailableAndNotTheCallersFault) {
  cuda_on_host::pretend({.error = cudaErrorNoDevice});
  const auto device = make_cuda_device({.accelerator = AcceleratorSpec{.backend = "cuda"}});
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(device.error().param, "device");
}

TEST_F(Probe, TooLittleMemoryIsSaidWithTheNumbers) {
  cuda_on_host::pretend({.free_bytes = size_t{1} << 30});
  const auto device = make_cuda_device(
      {.accelerator = AcceleratorSpec{.backend = "cuda"}, .device_memory_bytes = int64_t{2} << 30});
  ASSERT_FALSE(device.ok());
  EXPECT_THAT(device.error().message,
              AllOf(HasSubstr("2.00 GiB"), HasSubstr("1.00 GiB free of 16.00 GiB")));
}

TEST_F(Probe, AGpuIsDescribedWithoutTakingItsMemory) {
  EXPECT_EQ(describe_gpu("").value(), "cuda:0: host as GPU, sm_90, 15.00 GiB free of 16.00 GiB");
}

TEST_F(Probe, AGpuIsNamedByItsNumber) {
  EXPECT_EQ(gpu_index("").value(), 0);
  EXPECT_EQ(gpu_index("3").value(), 3);
  for (const char* wrong : {"x", "-1", "1x", "99999999999999"}) {
    EXPECT_FALSE(gpu_index(wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace tandem::device::cuda
