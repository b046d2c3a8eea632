// The device that these tests run, and operands that lie both there and here. Which device:
// TANDEM_TEST_DEVICE, as --device takes it ("cuda", "cuda:1", a plugin's file); by default the CUDA
// back end over the host's CUDA (tests/cuda_on_host). Nothing here reads device memory but by
// copies, so the tests are as right on a GPU.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "device/open/open.h"
#include "kernels/kernels.h"

namespace tandem::device {

// As TANDEM_TEST_DEVICE names it.
AcceleratorSpec wanted_device();

class DeviceUnderTest {
 public:
  static DeviceUnderTest& get();  // opened once; stops the program where it cannot be

  [[nodiscard]] Device& device() { return *device_; }
  void run(const Op& op);  // and waits for it

  // Memory from the device's, until the next clear().
  std::byte* take(int64_t bytes);
  void clear() { used_ = 0; }
  void write(void* device, const void* source, int64_t bytes);
  void read(void* target, const void* device, int64_t bytes);

 private:
  DeviceUnderTest();
  std::unique_ptr<Device> device_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Memory> staging_;
  StreamId stream_{};
  int64_t used_ = 0;
};

// Elements here and, from copy_in() on, on the device. Around those on the device lie guards.
template <class T>
class Both {
 public:
  explicit Both(int64_t count) : host(static_cast<size_t>(count)) {
    std::memset(static_cast<void*>(host.data()), 0xff, host.size() * sizeof(T));
    begin_ = DeviceUnderTest::get().take(bytes() + 2 * kGuard);
    copy_in();
  }
  explicit Both(std::vector<T> values) : Both(static_cast<int64_t>(values.size())) {
    host = std::move(values);
    copy_in();
  }

  void copy_in() {
    std::vector<unsigned char> all(static_cast<size_t>(bytes() + 2 * kGuard), 0xff);
    std::memcpy(all.data() + kGuard, host.data(), static_cast<size_t>(bytes()));
    DeviceUnderTest::get().write(begin_, all.data(), bytes() + 2 * kGuard);
  }
  // What the device has; the guards must be whole.
  [[nodiscard]] std::vector<T> result() const {
    std::vector<unsigned char> all(static_cast<size_t>(bytes() + 2 * kGuard));
    DeviceUnderTest::get().read(all.data(), begin_, bytes() + 2 * kGuard);
    for (int64_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(all[static_cast<size_t>(i)], 0xff) << "before an operand";
      EXPECT_EQ(all[static_cast<size_t>(kGuard + bytes() + i)], 0xff) << "behind an operand";
    }
    std::vector<T> values(host.size());
    std::memcpy(static_cast<void*>(values.data()), all.data() + kGuard,
                static_cast<size_t>(bytes()));
    return values;
  }
  [[nodiscard]] T* device() const { return reinterpret_cast<T*>(begin_ + kGuard); }
  [[nodiscard]] int64_t bytes() const {
    return static_cast<int64_t>(host.size()) * static_cast<int64_t>(sizeof(T));
  }

  std::vector<T> host;

 private:
  static constexpr int64_t kGuard = 256;
  std::byte* begin_ = nullptr;
};

}  // namespace tandem::device
