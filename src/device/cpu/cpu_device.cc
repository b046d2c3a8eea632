#include "device/cpu/cpu_device.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/units.h"
#include "device/cpu/machine.h"
#include "device/cpu/pages.h"
#include "device/cpu/stream.h"
#include "device/cpu/worker_pool.h"

namespace tandem::device {
namespace {

constexpr int32_t kMaxThreads = 1024;
constexpr int32_t kPinFromThreads = 8;
// Long enough to bridge the gap between two ops of a step, short enough that a sleeping machine
// stays cool and a neighbour loses little.
constexpr Nanos kSpin = std::chrono::microseconds(40);
// Where there are more compute threads than CPUs, whoever spins keeps another from its work.
constexpr Nanos kNoSpin{0};

// An event's id holds its stream in the upper bits and its number on that stream in the lower.
constexpr int kEventNumberBits = 48;

struct EventName {
  int32_t stream = 0;
  int64_t number = 0;
};

EventId pack_event(const EventName& name) {
  return static_cast<EventId>((int64_t{name.stream} << kEventNumberBits) | name.number);
}

EventName unpack_event(EventId event) {
  return {static_cast<int32_t>(raw(event) >> kEventNumberBits),
          raw(event) & ((int64_t{1} << kEventNumberBits) - 1)};
}

// What the device has handed out and not got back: memory that nobody has touched yet still counts.
struct Ledger {
  std::atomic<int64_t> outstanding_bytes{0};
};

class CpuMemory final : public Memory {
 public:
  CpuMemory(Pages pages, std::shared_ptr<Ledger> ledger)
      : pages_(std::move(pages)), ledger_(std::move(ledger)) {}
  ~CpuMemory() override {
    ledger_->outstanding_bytes.fetch_sub(pages_.bytes(), std::memory_order_relaxed);
  }
  CpuMemory(const CpuMemory&) = delete;
  CpuMemory& operator=(const CpuMemory&) = delete;

  [[nodiscard]] std::byte* data() const override { return pages_.data(); }
  [[nodiscard]] int64_t bytes() const override { return pages_.bytes(); }

 private:
  Pages pages_;
  std::shared_ptr<Ledger> ledger_;
};

class CpuDevice final : public Device {
 public:
  CpuDevice(const kernels::Kernels& kernels, std::unique_ptr<WorkerPool> pool, DeviceCaps caps)
      : kernels_(kernels), pool_(std::move(pool)), caps_(std::move(caps)) {}

  ~CpuDevice() override {
    for (const auto& stream : streams_) {
      if (stream) {
        stream->stop();
      }
    }
  }
  CpuDevice(const CpuDevice&) = delete;
  CpuDevice& operator=(const CpuDevice&) = delete;

  [[nodiscard]] const DeviceCaps& caps() const override { return caps_; }

  [[nodiscard]] Result<std::unique_ptr<Memory>> allocate(MemoryKind kind, int64_t bytes) override {
    if (bytes < 0) {
      return invalid_argument(fmt::format("cannot allocate {} bytes", bytes));
    }
    const int64_t before = ledger_->outstanding_bytes.fetch_add(bytes, std::memory_order_relaxed);
    const int64_t left = std::min(caps_.free_memory_bytes - before, machine_memory().free_bytes);
    std::optional<Pages> pages;
    if (bytes <= left) {
      pages = Pages::map(bytes);
    }
    if (!pages) {
      ledger_->outstanding_bytes.fetch_sub(bytes, std::memory_order_relaxed);
      return Error{
          ErrorCode::kResourceExhausted,
          fmt::format("not enough memory for {} of {} memory: {} of {} are left; use a smaller "
                      "model or KV pool, or raise the container's memory limit",
                      format_bytes(bytes), kind == MemoryKind::kDevice ? "device" : "staging",
                      format_bytes(std::max<int64_t>(left, 0)), format_bytes(caps_.memory_bytes)),
          {}};
    }
    return std::unique_ptr<Memory>(std::make_unique<CpuMemory>(std::move(*pages), ledger_));
  }

  StreamId create_stream() override {
    const int32_t index = stream_count_.load(std::memory_order_relaxed);
    CHECK(index < WorkerPool::kMaxDesks, "more than {} streams", index);
    try {
      streams_[static_cast<size_t>(index)] =
          std::make_unique<CpuStream>(kernels_, *pool_, pool_->spin());
    } catch (const std::system_error& error) {
      CHECK(false, "cannot start a stream's thread: {}", error.what());
    }
    stream_count_.store(index + 1, std::memory_order_release);
    return static_cast<StreamId>(index);
  }

  void launch(StreamId stream, const Op& op) override { at(raw(stream)).launch(op); }

  EventId record(StreamId stream) override {
    const int64_t number = at(raw(stream)).record(listener_);
    return pack_event({raw(stream), number});
  }

  void wait(StreamId stream, EventId event) override {
    const EventName name = unpack_event(event);
    at(raw(stream)).wait(at_recorded(name), name.number);
  }

  [[nodiscard]] bool query(EventId event) const override {
    const EventName name = unpack_event(event);
    return at_recorded(name).completed(name.number);
  }

  void synchronize(EventId event) override {
    const EventName name = unpack_event(event);
    at_recorded(name).synchronize(name.number);
  }

  void set_listener(std::function<void()> on_event) override {
    // Streams may still call the one before.
    listeners_.push_back(std::make_unique<std::function<void()>>(std::move(on_event)));
    listener_ = listeners_.back().get();
  }

 private:
  [[nodiscard]] CpuStream& at(int32_t index) const {
    CHECK(index >= 0 && index < stream_count_.load(std::memory_order_acquire), "stream {}", index);
    return *streams_[static_cast<size_t>(index)];
  }
  [[nodiscard]] CpuStream& at_recorded(const EventName& name) const {
    CpuStream& stream = at(name.stream);
    CHECK(name.number >= 1 && name.number <= stream.recorded(), "event {} of stream {}",
          name.number, name.stream);
    return stream;
  }

  const kernels::Kernels& kernels_;
  std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>();
  std::unique_ptr<WorkerPool> pool_;
  const DeviceCaps caps_;
  std::vector<std::unique_ptr<std::function<void()>>> listeners_;
  const std::function<void()>* listener_ = nullptr;  // given to each event when it is recorded
  std::array<std::unique_ptr<CpuStream>, WorkerPool::kMaxDesks> streams_;
  std::atomic<int32_t> stream_count_{0};
};

Result<kernels::Isa> choose_isa(const CpuDeviceOptions& options) {
  if (options.isa) {
    return *options.isa;
  }
  return kernels::available_isas().back();
}

}  // namespace

Result<std::unique_ptr<Device>> make_cpu_device(const CpuDeviceOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return invalid_argument(fmt::format("{} compute threads: must be 1 .. {}, or 0 for all",
                                        options.threads, kMaxThreads),
                            "threads");
  }
  ASSIGN_OR_RETURN(const kernels::Isa isa, choose_isa(options));
  ASSIGN_OR_RETURN(const kernels::Kernels* kernels, kernels::kernels_for(isa));
  const std::vector<int32_t> cpus = allowed_cpus();
  const auto cpu_count = static_cast<int32_t>(cpus.size());
  const int32_t usable = quota_cpus(cpu_count);
  const int32_t threads = options.threads == 0 ? std::min(usable, kMaxThreads) : options.threads;
  const bool pin = options.pinning == Pinning::kOn ||
                   (options.pinning == Pinning::kAuto && threads >= kPinFromThreads);
  ASSIGN_OR_RETURN(std::unique_ptr<WorkerPool> pool,
                   WorkerPool::create({.threads = threads,
                                       .spin = threads <= usable ? kSpin : kNoSpin,
                                       .cpus = pin ? cpus : std::vector<int32_t>{}}));
  const MachineMemory memory = machine_memory();
  DeviceCaps caps{
      .name = fmt::format("cpu ({}, {} thread{})", kernels->name, threads, threads == 1 ? "" : "s"),
      .isa = isa,
      .threads = threads,
      .memory_bytes = memory.total_bytes,
      .free_memory_bytes = memory.free_bytes};
  return std::unique_ptr<Device>(
      std::make_unique<CpuDevice>(*kernels, std::move(pool), std::move(caps)));
}

}  // namespace tandem::device
