#include "device/open/open.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <string>

namespace tandem::device {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

DeviceSpec two_tiers(const std::string& backend, const std::string& options) {
  auto accelerator = accelerator_spec(backend, options);
  EXPECT_TRUE(accelerator.ok()) << accelerator.error().message;
  return {.accelerator = std::move(accelerator).value(),
          .device_memory_bytes = int64_t{8} << 20,
          .host_memory_bytes = int64_t{8} << 20};
}

TEST(OpenDevice, WithoutAnAcceleratorThereIsOneTierOnTheCpu) {
  const auto device = open({.cpu = {.threads = 1}});
  ASSERT_TRUE(device.ok()) << device.error().message;
  EXPECT_EQ((*device)->caps().backend, "cpu");
  EXPECT_EQ((*device)->caps().threads, 1);
  EXPECT_EQ((*device)->host().pinned_bytes, 0);
  EXPECT_TRUE((*device)->pace().empty());
  EXPECT_TRUE((*device)->statistics().streams.empty());
}

TEST(OpenDevice, AnAcceleratorIsKnownByName) {
  const auto device = open(two_tiers("emulated", "pace=h200,slowdown=2"));
  ASSERT_TRUE(device.ok()) << device.error().message;
  EXPECT_EQ((*device)->caps().backend, "emulated_accelerator");
  EXPECT_THAT((*device)->caps().identity,
              AllOf(HasSubstr("paced as h200"), HasSubstr("slowdown 2")));
  EXPECT_EQ((*device)->host().pinned_bytes, int64_t{8} << 20);
  EXPECT_THAT((*device)->pace(), HasSubstr("paced as h200"));
  EXPECT_TRUE((*device)->caps().needs_weights);
}

TEST(OpenDevice, ASpecSaysWhatItsOptionsMeanBeforeAnythingIsOpened) {
  const auto hollow = accelerator_spec("emulated", "pace=a100,hollow");
  ASSERT_TRUE(hollow.ok());
  EXPECT_TRUE(hollow->hollow);
  EXPECT_EQ(hollow->link_bytes_per_second, 25e9);
  EXPECT_EQ(hollow->drill, "");
  const auto drill = accelerator_spec("emulated", "faults=throw:3+hold:4,fault-seed=9");
  ASSERT_TRUE(drill.ok());
  EXPECT_EQ(drill->worker_faults, "throw:3");
  EXPECT_EQ(drill->fault_seed, 9U);
  EXPECT_THAT(drill->drill, AllOf(HasSubstr("throw in 3/1000"), HasSubstr("hold in 4/1000")));
  EXPECT_FALSE(accelerator_spec("emulated", "cores=0").ok());
}

TEST(OpenDevice, BothMemoriesMustBeGiven) {
  DeviceSpec spec = two_tiers("emulated", "");
  spec.host_memory_bytes = 0;
  const auto refused = open(spec);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().param, "host-memory");
}

TEST(OpenDevice, AnUnknownNameIsNoPlugin) {
  const auto refused = open(two_tiers("/nowhere/libcuda_backend.so", ""));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("/nowhere/libcuda_backend.so"), HasSubstr("cpu and emulated")));
}

TEST(OpenDevice, APluginIsGivenItsOptions) {
  const auto refused = open(two_tiers(TEST_PLUGIN, "gpu=3"));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "no device of this kind, asked for gpu=3");
}

TEST(OpenDevice, APluginSaysWhatThereIsWithoutTakingIt) {
  const auto found = find_device({.backend = TEST_PLUGIN, .options = "gpu=3"});
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(*found, "a device of tests, asked for gpu=3");
}

TEST(OpenDevice, APluginIsThereIfItsFileIs) {
  EXPECT_TRUE(has_plugin(TEST_PLUGIN));
  EXPECT_TRUE(has_plugin(TEST_PLUGIN_NEWER));  // although it is refused
  EXPECT_FALSE(has_plugin("nosuch"));
  EXPECT_FALSE(has_plugin("/nowhere/libcuda_backend.so"));
}

TEST(OpenDevice, APluginThatWasNotBuiltIsAbsentWithTheCure) {
  const auto refused = find_device({.backend = "nosuch"});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("nosuch: absent"), HasSubstr("libtandem_nosuch.so"),
                    HasSubstr("tools/gpu/install_nvcc.sh")));
}

#ifdef CUDA_PLUGIN
// The real library: where there is no GPU it must say so, with the cure, and never crash.
TEST(OpenDevice, TheCudaPluginOpensOrSaysWhyNot) {
  const auto found = find_device({.backend = CUDA_PLUGIN});
  const auto opened = open({.accelerator = AcceleratorSpec{.backend = CUDA_PLUGIN},
                            .device_memory_bytes = int64_t{64} << 20,
                            .host_memory_bytes = int64_t{64} << 20});
  ASSERT_EQ(found.ok(), opened.ok());
  if (found.ok()) {
    EXPECT_EQ((*opened)->caps().backend, "cuda");
    GTEST_SKIP() << "this machine has " << *found;
  }
  for (const Error& error : {found.error(), opened.error()}) {
    EXPECT_EQ(error.code, ErrorCode::kUnavailable);
    EXPECT_THAT(error.message, HasSubstr("cuda: absent: "));
    if (!std::filesystem::exists("/proc/driver/nvidia")) {
      EXPECT_THAT(error.message, AllOf(HasSubstr("no NVIDIA driver is loaded"),
                                       HasSubstr("580 or newer"), HasSubstr("--device cpu")));
    }
  }
}
#endif

TEST(OpenDevice, APluginOfAnotherVersionIsRefused) {
  const auto refused = open(two_tiers(TEST_PLUGIN_NEWER, ""));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("build both from the same source"));
}

}  // namespace
}  // namespace tandem::device
