#include "device_under_test.h"

#include <dlfcn.h>

#include <cstdlib>
#include <sstream>

#include "base/check.h"

namespace tandem::device {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kStagingBytes = 8 * kMiB;
constexpr int64_t kAlignment = 256;

const char* variable(const char* name) {
  const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return text == nullptr ? "" : text;
}

// By the end of all tests, blocks of the kernels of TANDEM_TEST_KERNELS ("Name:Name") have run over
// the host's CUDA.
class KernelsHaveRun : public testing::Environment {
 public:
  void TearDown() override {
    std::istringstream names(variable("TANDEM_TEST_KERNELS"));
    for (std::string name; std::getline(names, name, ':');) {
      EXPECT_GT(blocks(name), 0) << "blocks of " << name;
    }
  }

 private:
  static int64_t blocks(const std::string& name) {
    void* const plugin = dlopen(CUDA_ON_HOST_PLUGIN, RTLD_NOW);
    void* const count = plugin == nullptr ? nullptr : dlsym(plugin, "cuda_on_host_blocks");
    return count == nullptr ? -1 : reinterpret_cast<int64_t (*)(const char*)>(count)(name.c_str());
  }
};
[[maybe_unused]] testing::Environment* const kKernelsHaveRun =
    testing::AddGlobalTestEnvironment(new KernelsHaveRun);

}  // namespace

AcceleratorSpec wanted_device() {
  const std::string given = variable("TANDEM_TEST_DEVICE");
  const std::string name = given.empty() ? CUDA_ON_HOST_PLUGIN : given;
  const size_t colon = name.find(':', name.rfind('/') == std::string::npos ? 0 : name.rfind('/'));
  return {.backend = name.substr(0, colon),
          .options = colon == std::string::npos ? "" : name.substr(colon + 1)};
}

DeviceUnderTest& DeviceUnderTest::get() {
  static DeviceUnderTest one;
  return one;
}

DeviceUnderTest::DeviceUnderTest() {
  auto opened = open({.accelerator = wanted_device(),
                      .device_memory_bytes = 512 * kMiB,
                      .host_memory_bytes = 128 * kMiB});
  CHECK(opened.ok(), "{}", opened.error().message);
  device_ = std::move(opened).value();
  memory_ = std::move(device_->allocate(MemoryKind::kDevice, 256 * kMiB)).value();
  staging_ = std::move(device_->allocate(MemoryKind::kHostPinned, kStagingBytes)).value();
  stream_ = device_->create_stream();
  testing::Test::RecordProperty("device", device_->caps().name);
}

void DeviceUnderTest::run(const Op& op) {
  device_->launch(stream_, op);
  device_->synchronize(device_->record(stream_));
}

std::byte* DeviceUnderTest::take(int64_t bytes) {
  used_ = (used_ + kAlignment - 1) / kAlignment * kAlignment;
  std::byte* piece = memory_->data() + used_;
  used_ += bytes;
  CHECK(used_ <= memory_->bytes(), "{} bytes of operands", used_);
  return piece;
}

void DeviceUnderTest::write(void* device, const void* source, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kStagingBytes) {
    const int64_t piece = std::min(bytes - at, kStagingBytes);
    std::memcpy(staging_->data(), static_cast<const std::byte*>(source) + at,
                static_cast<size_t>(piece));
    run(CopyOp{static_cast<std::byte*>(device) + at, staging_->data(), piece});
  }
}

void DeviceUnderTest::read(void* target, const void* device, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kStagingBytes) {
    const int64_t piece = std::min(bytes - at, kStagingBytes);
    run(CopyOp{staging_->data(), static_cast<const std::byte*>(device) + at, piece});
    std::memcpy(static_cast<std::byte*>(target) + at, staging_->data(), static_cast<size_t>(piece));
  }
}

}  // namespace tandem::device
