#include "bench/device_stand.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tandem::bench {
namespace {

constexpr int64_t kPieceBytes = int64_t{64} << 20;
constexpr int64_t kAlignment = 256;

void fill_random(std::byte* data, int64_t bytes) {
  uint64_t state = 88172645463325252ULL;
  for (int64_t i = 0; i + 4 <= bytes; i += 4) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    // Exponents of 2^-3 to 2^0, random signs and fractions.
    const uint32_t word = (static_cast<uint32_t>(state >> 32) & 0x81ff81ffU) | 0x3e003e00U;
    std::memcpy(data + i, &word, sizeof(word));
  }
}

}  // namespace

Result<std::unique_ptr<DeviceStand>> DeviceStand::open(const DeviceStandOptions& options) {
  std::unique_ptr<DeviceStand> stand(new DeviceStand());
  const int64_t staging_bytes = std::min(options.host_memory_bytes / 2, kPieceBytes);
  const int64_t pattern_bytes = std::min(options.device_memory_bytes / 8, kPieceBytes);
  ASSIGN_OR_RETURN(stand->device_, device::open({.accelerator = options.accelerator,
                                                 .device_memory_bytes = options.device_memory_bytes,
                                                 .host_memory_bytes = options.host_memory_bytes}));
  device::Device& device = *stand->device_;
  stand->stream_ = device.create_stream();
  ASSIGN_OR_RETURN(stand->staging_,
                   device.allocate(device::MemoryKind::kHostPinned, staging_bytes));
  ASSIGN_OR_RETURN(stand->pinned_,
                   device.allocate(device::MemoryKind::kHostPinned, options.host_memory_bytes / 2));
  ASSIGN_OR_RETURN(stand->pattern_, device.allocate(device::MemoryKind::kDevice, pattern_bytes));
  ASSIGN_OR_RETURN(stand->memory_, device.allocate(device::MemoryKind::kDevice,
                                                   options.device_memory_bytes - pattern_bytes));
  fill_random(stand->staging_->data(), staging_bytes);
  for (int64_t at = 0; at < pattern_bytes; at += staging_bytes) {
    stand->run(device::CopyOp{stand->pattern_->data() + at, stand->staging_->data(),
                              std::min(staging_bytes, pattern_bytes - at)});
  }
  return stand;
}

void DeviceStand::run(const device::Op& op) {
  device_->launch(stream_, op);
  device_->synchronize(device_->record(stream_));
}

void DeviceStand::clear() { used_ = 0; }

std::byte* DeviceStand::place(int64_t bytes) {
  used_ = (used_ + kAlignment - 1) / kAlignment * kAlignment;
  std::byte* begin = memory_->data() + used_;
  used_ += bytes;
  return fits() ? begin : memory_->data();
}

std::byte* DeviceStand::take(int64_t bytes) {
  std::byte* begin = place(bytes);
  if (!fits()) {
    return begin;
  }
  for (int64_t at = 0; at < bytes; at += pattern_->bytes()) {
    device_->launch(stream_, device::CopyOp{begin + at, pattern_->data(),
                                            std::min(pattern_->bytes(), bytes - at)});
  }
  return begin;
}

std::byte* DeviceStand::put_bytes(const void* values, int64_t bytes) {
  std::byte* begin = place(bytes);
  for (int64_t at = 0; at < bytes && fits(); at += staging_->bytes()) {
    const int64_t piece = std::min(staging_->bytes(), bytes - at);
    std::memcpy(staging_->data(), static_cast<const std::byte*>(values) + at,
                static_cast<size_t>(piece));
    run(device::CopyOp{begin + at, staging_->data(), piece});
  }
  return begin;
}

}  // namespace tandem::bench
