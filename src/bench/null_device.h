// A device with two tiers that does nothing: memory is there, ops are taken and forgotten, and what
// was recorded completes when it is told to. So what calls it can be measured alone. Streams of
// copies complete a tick after what they waited for. One thread, but for query.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "device/cpu/host_formats.h"
#include "device/device.h"

namespace tandem::bench {

// What was asked of it.
struct NullDeviceCounts {
  int64_t ops = 0;     // of compute streams
  int64_t copies = 0;  // of the others
  int64_t events = 0;
  int64_t waits = 0;
};

class NullDevice final : public device::Device {
 public:
  explicit NullDevice(std::vector<int32_t> host_cpus);

  // The oldest event of compute streams that listeners hear of completes, with what has no op
  // between it and that one; and copies that could have begun before.
  void tick();
  // Only the copies.
  void tick_copies();
  [[nodiscard]] const NullDeviceCounts& counts() const { return counts_; }

  [[nodiscard]] const device::AcceleratorCaps& caps() const override { return caps_; }
  [[nodiscard]] const device::HostCaps& host() const override { return host_; }
  [[nodiscard]] const device::Formats& formats() const override { return device::host_formats(); }
  [[nodiscard]] Result<std::unique_ptr<device::Memory>> allocate(
      const device::MemoryRequest& request) override;
  device::StreamId create_stream(device::StreamKind kind) override;
  void launch(device::StreamId stream, const device::Op& op) override;
  device::EventId record(device::StreamId stream) override;
  device::EventId record_polled(device::StreamId stream) override;
  void wait(device::StreamId stream, device::EventId event) override;
  [[nodiscard]] bool query(device::EventId event) const override;
  void synchronize(device::EventId event) override;
  void set_listener(std::function<void()> on_event) override;

 private:
  struct Event {
    int64_t ops = 0;  // launched before it
    int64_t tick = 0;
    device::EventId awaited{};
    bool quiet = false;
  };
  struct Stream {
    bool computes = false;
    int64_t ops = 0;
    int64_t done = 0;  // leading events that are complete
    device::EventId awaited{};
    std::vector<Event> events;
  };
  static constexpr int kNumberBits = 48;
  device::EventId add_event(device::StreamId stream, bool quiet);
  void complete_compute(Stream& stream) const;
  void complete_copies(Stream& stream);
  [[nodiscard]] Stream& at(device::StreamId stream) {
    return streams_[static_cast<size_t>(raw(stream))];
  }

  device::AcceleratorCaps caps_;
  device::HostCaps host_;
  NullDeviceCounts counts_;
  int64_t tick_ = 0;
  std::vector<Stream> streams_;
};

}  // namespace tandem::bench
