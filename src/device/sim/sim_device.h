// An accelerator in virtual time under the real executor: an op takes what the machine's truth says
// and computes nothing. What really happens: tokens are sampled (numbers in turn that mean nothing)
// and copied to where they are read. Memory is addresses only; pages are touched where the executor
// writes.
//
// synchronize() lets virtual time pass. One thread: that of the VirtualTime.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "base/virtual_time.h"
#include "device/device.h"
#include "device/sim/sim_spec.h"
#include "device/sim/sim_stream.h"

namespace tandem::device {

class SimDevice final : public Device {
 public:
  // `time` must outlive it.
  SimDevice(VirtualTime& time, SimSpec spec);
  ~SimDevice() override;

  [[nodiscard]] const AcceleratorCaps& caps() const override { return caps_; }
  [[nodiscard]] const HostCaps& host() const override { return host_; }
  [[nodiscard]] const Formats& formats() const override;
  [[nodiscard]] DeviceStatistics statistics() const override;
  using Device::allocate;
  [[nodiscard]] Result<std::unique_ptr<Memory>> allocate(const MemoryRequest& request) override;
  StreamId create_stream(StreamKind kind) override;
  void launch(StreamId stream, const Op& op) override;
  EventId record(StreamId stream) override { return add_event(stream, false); }
  EventId record_polled(StreamId stream) override { return add_event(stream, true); }
  void wait(StreamId stream, EventId event) override;
  [[nodiscard]] bool query(EventId event) const override;
  void synchronize(EventId event) override;
  void set_listener(std::function<void()> on_event) override { listener_ = std::move(on_event); }

  // Ops of compute streams share this bandwidth, which must outlive the device. Before the first
  // stream.
  void share(SharedBandwidth& bandwidth) { bandwidth_ = &bandwidth; }

  // Ops that are launched from now on take their time as often as `pace` says, asked for each of
  // them: what a faulty measurement of the machine would see. Null: once, the truth.
  void set_pace(std::function<double()> pace) { pace_ = std::move(pace); }
  // Called with the beginning and end of each op of compute streams, as soon as it is handed out:
  // mostly before that time has come.
  void watch_compute(std::function<void(Nanos, Nanos)> watcher) { watcher_ = std::move(watcher); }

 private:
  class Bytes;
  struct Range {
    const std::byte* begin = nullptr;
    const std::byte* end = nullptr;
    MemoryKind kind = MemoryKind::kDevice;
  };

  EventId add_event(StreamId stream, bool quiet);
  void compute(SimStream& stream, const Op& op);
  void sample(const SampleOp& op);
  void copy(SimStream& stream, const CopyOp& op);
  [[nodiscard]] MemoryKind kind_of(const void* address) const;
  [[nodiscard]] SimStream& at(StreamId stream) { return *streams_[static_cast<size_t>(stream)]; }

  VirtualTime& time_;
  const SimSpec spec_;
  AcceleratorCaps caps_;
  HostCaps host_;
  int64_t device_left_;
  int64_t host_left_;
  std::vector<Range> memory_;   // by address
  std::vector<Range> sampled_;  // where tokens were written
  int32_t next_token_ = 0;
  SimLink to_host_;
  SimLink from_host_;
  std::function<void()> listener_;
  std::function<double()> pace_;
  std::function<void(Nanos, Nanos)> watcher_;
  SharedBandwidth* bandwidth_ = nullptr;
  std::vector<std::unique_ptr<SimStream>> streams_;
};

}  // namespace tandem::device
