// Test help: a device that passes everything on to another one; tests override what they want to
// see or to change. Threads: as the other device's.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "device/device.h"

namespace tandem::reference {

class ForwardingDevice : public device::Device {
 public:
  // Borrows `inner`.
  explicit ForwardingDevice(device::Device& inner) : inner_(inner) {}
  // Owns it.
  explicit ForwardingDevice(std::unique_ptr<device::Device> inner)
      : owned_(std::move(inner)), inner_(*owned_) {}

  [[nodiscard]] const device::AcceleratorCaps& caps() const override { return inner_.caps(); }
  [[nodiscard]] const device::HostCaps& host() const override { return inner_.host(); }
  [[nodiscard]] const device::Formats& formats() const override { return inner_.formats(); }
  [[nodiscard]] device::DeviceStatistics statistics() const override { return inner_.statistics(); }
  [[nodiscard]] const Error* failure() const override { return inner_.failure(); }
  using Device::allocate;
  [[nodiscard]] Result<std::unique_ptr<device::Memory>> allocate(
      const device::MemoryRequest& request) override {
    return inner_.allocate(request);
  }
  using Device::create_stream;
  device::StreamId create_stream(device::StreamKind kind) override {
    return inner_.create_stream(kind);
  }
  void launch(device::StreamId stream, const device::Op& op) override { inner_.launch(stream, op); }
  device::EventId record(device::StreamId stream) override { return inner_.record(stream); }
  void wait(device::StreamId stream, device::EventId event) override { inner_.wait(stream, event); }
  [[nodiscard]] bool query(device::EventId event) const override { return inner_.query(event); }
  void synchronize(device::EventId event) override { inner_.synchronize(event); }
  void set_listener(std::function<void()> on_event) override {
    inner_.set_listener(std::move(on_event));
  }

 private:
  const std::unique_ptr<device::Device> owned_;  // null: borrowed
  device::Device& inner_;
};

}  // namespace tandem::reference
