// A back end that keeps attention results in fp32, although its products read the weights' type.
#pragma once

#include <memory>
#include <utility>
#include <variant>

#include "support/forwarding_device.h"

namespace tandem::reference {

class WideAttention final : public ForwardingDevice, public device::Formats {
 public:
  explicit WideAttention(std::unique_ptr<device::Device> inner)
      : ForwardingDevice(std::move(inner)) {}
  [[nodiscard]] const device::Formats& formats() const override { return *this; }
  void launch(device::StreamId stream, const device::Op& op) override {
    casts += std::holds_alternative<device::CastOp>(op) ? 1 : 0;
    ForwardingDevice::launch(stream, op);
  }

  [[nodiscard]] bool supports(const device::WeightFormat& format) const override {
    return own().supports(format);
  }
  [[nodiscard]] int64_t weight_bytes(const device::WeightFormat& format, int64_t n,
                                     int64_t k) const override {
    return own().weight_bytes(format, n, k);
  }
  [[nodiscard]] device::NumberTypes numbers(const device::WeightFormat& format) const override {
    device::NumberTypes numbers = own().numbers(format);
    numbers.attended = ElementType::kF32;
    return numbers;
  }
  [[nodiscard]] ElementType query_type(const kernels::KvLayout& layout,
                                       ElementType attended) const override {
    return own().query_type(layout, attended);
  }
  [[nodiscard]] int64_t attention_workspace_bytes(
      const device::AttentionBounds& bounds) const override {
    return own().attention_workspace_bytes(bounds);
  }
  [[nodiscard]] int64_t row_stride(int64_t columns, ElementType type) const override {
    return own().row_stride(columns, type);
  }

  int casts = 0;

 private:
  [[nodiscard]] const device::Formats& own() const { return ForwardingDevice::formats(); }
};

}  // namespace tandem::reference
