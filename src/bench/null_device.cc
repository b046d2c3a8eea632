#include "bench/null_device.h"

#include <utility>

#include "base/check.h"
#include "device/cpu/pages.h"

namespace tandem::bench {
namespace {

constexpr int64_t kMemoryBytes = int64_t{1} << 40;  // never touched but where attention reads

class NullMemory final : public device::Memory {
 public:
  explicit NullMemory(device::Pages pages) : pages_(std::move(pages)) {}
  [[nodiscard]] std::byte* data() const override { return pages_.data(); }
  [[nodiscard]] int64_t bytes() const override { return pages_.bytes(); }

 private:
  device::Pages pages_;
};

}  // namespace

NullDevice::NullDevice(std::vector<int32_t> host_cpus)
    : caps_{.name = "a device that does nothing",
            .backend = "null",
            .memory_bytes = kMemoryBytes,
            .free_memory_bytes = kMemoryBytes},
      host_{.isa = kernels::available_isas().back(),
            .pinned_bytes = kMemoryBytes,
            .cpus = std::move(host_cpus)} {}

Result<std::unique_ptr<device::Memory>> NullDevice::allocate(const device::MemoryRequest& request) {
  std::optional<device::Pages> pages = device::Pages::map(request.bytes);
  if (!pages.has_value()) {
    return Error{ErrorCode::kResourceExhausted, "no address space is left", ""};
  }
  return std::unique_ptr<device::Memory>(std::make_unique<NullMemory>(*std::move(pages)));
}

device::StreamId NullDevice::create_stream(device::StreamKind kind) {
  streams_.push_back({.computes = kind == device::StreamKind::kCompute, .events = {}});
  return static_cast<device::StreamId>(streams_.size() - 1);
}

void NullDevice::launch(device::StreamId stream, const device::Op& /*op*/) {
  Stream& one = at(stream);
  ++one.ops;
  ++(one.computes ? counts_.ops : counts_.copies);
}

device::EventId NullDevice::add_event(device::StreamId stream, bool quiet) {
  Stream& one = at(stream);
  ++counts_.events;
  one.events.push_back({.ops = one.ops, .tick = tick_, .awaited = one.awaited, .quiet = quiet});
  return static_cast<device::EventId>((int64_t{raw(stream)} << kNumberBits) |
                                      std::ssize(one.events));
}

device::EventId NullDevice::record(device::StreamId stream) { return add_event(stream, false); }
device::EventId NullDevice::record_polled(device::StreamId stream) {
  return add_event(stream, true);
}

void NullDevice::wait(device::StreamId stream, device::EventId event) {
  ++counts_.waits;
  at(stream).awaited = event;
}

bool NullDevice::query(device::EventId event) const {
  const int64_t number = raw(event) & ((int64_t{1} << kNumberBits) - 1);
  return number <= streams_[static_cast<size_t>(raw(event) >> kNumberBits)].done;
}

void NullDevice::synchronize(device::EventId event) {
  while (!query(event)) {
    tick();
  }
}

void NullDevice::set_listener(std::function<void()> /*on_event*/) {}

void NullDevice::tick() {
  ++tick_;
  for (Stream& stream : streams_) {
    if (stream.computes) {
      complete_compute(stream);
    } else {
      complete_copies(stream);
    }
  }
}

void NullDevice::tick_copies() {
  ++tick_;
  for (Stream& stream : streams_) {
    if (!stream.computes) {
      complete_copies(stream);
    }
  }
}

void NullDevice::complete_compute(Stream& stream) const {
  bool heard = false;
  while (stream.done < std::ssize(stream.events)) {
    const Event& next = stream.events[static_cast<size_t>(stream.done)];
    if (heard && next.ops > stream.events[static_cast<size_t>(stream.done - 1)].ops) {
      return;
    }
    heard = heard || !next.quiet;
    ++stream.done;
  }
}

void NullDevice::complete_copies(Stream& stream) {
  while (stream.done < std::ssize(stream.events)) {
    const Event& next = stream.events[static_cast<size_t>(stream.done)];
    const bool waited = raw(next.awaited) == 0 || query(next.awaited);
    if (next.tick == tick_ || !waited) {
      return;
    }
    ++stream.done;
  }
}

}  // namespace tandem::bench
