#include "node/device_choice.h"

#include <gmock/gmock.h>

#include <string>

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const Error kThreads = {ErrorCode::kInvalidArgument, "--threads does not go", "threads"};
const Error kNoDriver = {ErrorCode::kUnavailable, "cuda: absent: no driver", "device"};
const Error kTooLarge = {ErrorCode::kResourceExhausted, "the model does not fit", "device-memory"};

GpuFacts open_gpu(const std::string& kernels) { return {.name = "cuda:0 (A)", .kernels = kernels}; }

TEST(DeviceChoice, AGpuWithoutAnObstacleIsTaken) {
  for (const GpuFacts& facts :
       {GpuFacts{}, open_gpu("cuda-cublaslt"), open_gpu("cuda-cublaslt-flashinfer")}) {
    const auto choice = choose_device({}, facts);
    ASSERT_TRUE(choice.ok());
    EXPECT_TRUE(choice->takes_gpu);
    EXPECT_THAT(describe(*choice), HasSubstr("device: the GPU (auto: "));
  }
}

TEST(DeviceChoice, EachObstacleMeansTheCpusAndIsTheReason) {
  const std::pair<GpuFacts, const Error&> cases[] = {{{.options = kThreads}, kThreads},
                                                     {{.probe = kNoDriver}, kNoDriver},
                                                     {{.model = kTooLarge}, kTooLarge}};
  for (const auto& [facts, error] : cases) {
    const auto choice = choose_device({}, facts);
    ASSERT_TRUE(choice.ok());
    EXPECT_FALSE(choice->takes_gpu);
    EXPECT_EQ(describe(*choice), "device: the CPUs (auto: " + error.message + ")");
  }
}

TEST(DeviceChoice, TheFirstObstacleIsTheReason) {
  const auto choice = choose_device(
      {}, {.options = kThreads, .probe = kNoDriver, .model = kTooLarge, .kernels = "cuda-plain"});
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->reason, kThreads.message);
}

TEST(DeviceChoice, AGpuWithoutCublasltIsLeftWithTheCure) {
  for (const char* kernels : {"cuda-plain", "cuda-plain-flashinfer", ""}) {
    const auto choice = choose_device({}, open_gpu(kernels));
    ASSERT_TRUE(choice.ok());
    EXPECT_FALSE(choice->takes_gpu);
    EXPECT_THAT(choice->reason,
                AllOf(HasSubstr("cuda:0 (A) has no cuBLASLt"),
                      HasSubstr("pip install nvidia-cublas"), HasSubstr("--device cuda")));
  }
}

TEST(DeviceChoice, AnOptionForTheGpuMakesItsObstaclesErrors) {
  const AutomaticGpu required{.required_by = "host-memory"};
  const auto fits = choose_device(required, open_gpu("cuda-cublaslt"));
  ASSERT_TRUE(fits.ok());
  EXPECT_TRUE(fits->takes_gpu);
  for (const GpuFacts& facts : {GpuFacts{.options = kThreads}, GpuFacts{.probe = kNoDriver},
                                GpuFacts{.model = kTooLarge}}) {
    const auto choice = choose_device(required, facts);
    ASSERT_FALSE(choice.ok());
    const auto reason = choose_device({}, facts);
    EXPECT_THAT(choice.error().message,
                AllOf(HasSubstr("--host-memory is for two tiers"), HasSubstr(reason->reason),
                      HasSubstr("leave --host-memory out"), HasSubstr("--emulate-accelerator")));
  }
  EXPECT_EQ(choose_device(required, {.model = kTooLarge}).error().code,
            ErrorCode::kResourceExhausted);
  EXPECT_FALSE(choose_device(required, open_gpu("cuda-plain")).ok());
}

TEST(DeviceChoice, AWrongVariableOfTheGpuIsAnError) {
  const Error wrong = {ErrorCode::kInvalidArgument, "give float32 or bfloat16",
                       "TANDEM_CUDA_RESIDUAL"};
  const auto choice = choose_device({}, {.model = wrong});
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.error().message, wrong.message);
}

// The caller then refuses the options that one tier cannot follow, as without this choice.
TEST(DeviceChoice, WithoutTheBackEndTheCpusAreTaken) {
  for (const char* required_by : {"", "host-memory"}) {
    const auto choice =
        choose_device({.required_by = required_by}, {.has_plugin = false, .probe = kNoDriver});
    ASSERT_TRUE(choice.ok());
    EXPECT_FALSE(choice->takes_gpu);
    EXPECT_EQ(choice->reason, kNoDriver.message);
  }
}

TEST(DeviceChoice, HostMemoryIsAnEighthOfTheAvailableWithinABound) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  constexpr int64_t kGiB = int64_t{1} << 30;
  EXPECT_EQ(automatic_host_memory(8 * kGiB, kMaxAutomaticHostBytes), kGiB);
  EXPECT_EQ(automatic_host_memory(32 * kGiB, kMaxAutomaticHostBytes), 4 * kGiB);
  EXPECT_EQ(automatic_host_memory(256 * kGiB, kMaxAutomaticHostBytes), 4 * kGiB);
  EXPECT_EQ(automatic_host_memory(256 * kGiB, kDefaultModelHostBytes), 512 * kMiB);
  EXPECT_EQ(automatic_host_memory(kGiB, kDefaultModelHostBytes), 128 * kMiB);
  EXPECT_EQ(automatic_host_memory(kGiB + kMiB, kDefaultModelHostBytes), 128 * kMiB);
  EXPECT_EQ(automatic_host_memory(0, kMaxAutomaticHostBytes), 0);
}

}  // namespace
}  // namespace tandem
