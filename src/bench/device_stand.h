// An accelerator that `tandem bench kernels --device` measures, with memory for operands. Operands
// are filled with random bfloat16 numbers of both signs, 1/8 to 2 in magnitude: equal numbers would
// draw less power and so run faster than a model's. Read as fp32 they are such numbers, too.
//
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "device/open/open.h"

namespace tandem::bench {

struct DeviceStandOptions {
  device::AcceleratorSpec accelerator;
  int64_t device_memory_bytes = 0;
  int64_t host_memory_bytes = 0;
};

class DeviceStand {
 public:
  static Result<std::unique_ptr<DeviceStand>> open(const DeviceStandOptions& options);

  [[nodiscard]] device::Device& device() const { return *device_; }
  [[nodiscard]] device::StreamId stream() const { return stream_; }
  // Of bfloat16 weights.
  [[nodiscard]] device::NumberTypes numbers() const {
    return device_->formats().numbers({.type = ElementType::kBF16});
  }
  [[nodiscard]] ElementType query_type(const kernels::KvLayout& layout) const {
    return device_->formats().query_type(layout, numbers().attended);
  }
  // Pinned memory, of half of host_memory_bytes.
  [[nodiscard]] device::Memory& pinned() const { return *pinned_; }

  // Room on the device with random numbers, until the next clear(). If it does not fit, any place:
  // then fits() is false and nothing may be launched.
  std::byte* take(int64_t bytes);
  float* take_floats(int64_t count) {
    return reinterpret_cast<float*>(take(count * int64_t{sizeof(float)}));
  }
  // These values on the device.
  template <class T>
  T* put(const std::vector<T>& values) {
    return reinterpret_cast<T*>(
        put_bytes(values.data(), static_cast<int64_t>(values.size() * sizeof(T))));
  }
  void clear();
  [[nodiscard]] bool fits() const { return used_ <= memory_->bytes(); }
  [[nodiscard]] int64_t taken_bytes() const { return used_; }

  void run(const device::Op& op);  // and waits for it

 private:
  DeviceStand() = default;
  std::byte* place(int64_t bytes);
  std::byte* put_bytes(const void* values, int64_t bytes);

  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Memory> memory_;
  std::unique_ptr<device::Memory> pattern_;  // random numbers, on the device
  std::unique_ptr<device::Memory> pinned_;
  std::unique_ptr<device::Memory> staging_;
  device::StreamId stream_{};
  int64_t used_ = 0;
};

}  // namespace tandem::bench
