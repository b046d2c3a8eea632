#include "device/emulated/emulated_accelerator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "device/cpu/host_formats.h"
#include "device/cpu/machine.h"
#include "device/cpu/stream_set.h"
#include "device/cpu/topology.h"
#include "device/cpu/worker_pool.h"
#include "device/emulated/arena.h"
#include "device/emulated/emulated_work.h"
#include "device/emulated/op_check.h"
#include "device/emulated/stream_counters.h"

namespace tandem::device {
namespace {

// Streams of copies share the accelerator's cores with its compute; whoever spins on the only core
// keeps the others from it.
constexpr Nanos kSpin = std::chrono::microseconds(40);
constexpr int32_t kSpinFromCores = 4;

struct Parts {
  kernels::KernelSet kernels;
  std::unique_ptr<WorkerPool> compute_pool;
  std::unique_ptr<WorkerPool> copy_pool;  // of one thread: each copy stream copies by itself
  std::shared_ptr<Arena> device_memory;
  std::shared_ptr<Arena> host_memory;
  AcceleratorCaps caps;
  HostCaps host;
  EmulationSpec spec;
  observe::Timeline* timeline = nullptr;
};

constexpr uint64_t kHollowSeed = 1;

class EmulatedDevice final : public EmulatedAccelerator {
 public:
  explicit EmulatedDevice(Parts parts)
      : parts_(std::move(parts)),
        tiers_{*parts_.device_memory, *parts_.host_memory, parts_.spec.hollow},
        link_(parts_.spec.link_bytes_per_second()) {}

  [[nodiscard]] const AcceleratorCaps& caps() const override { return parts_.caps; }
  [[nodiscard]] const HostCaps& host() const override { return parts_.host; }
  [[nodiscard]] const Formats& formats() const override { return host_formats(); }
  [[nodiscard]] std::string pace() const override {
    return link_.bytes_per_second() > 0 ? describe_pace(parts_.spec) : "";
  }

  using Device::allocate;
  [[nodiscard]] Result<std::unique_ptr<Memory>> allocate(const MemoryRequest& request) override {
    const bool on_device = request.kind == MemoryKind::kDevice;
    return (on_device ? parts_.device_memory : parts_.host_memory)->allocate(request.bytes);
  }

  StreamId create_stream(StreamKind kind) override {
    const bool computes = kind == StreamKind::kCompute;
    const std::vector<int32_t>& cpus = parts_.caps.cpus;
    const int32_t index = stream_count_.load(std::memory_order_relaxed);
    CHECK(index < static_cast<int32_t>(counters_.size()), "more than {} streams", index);
    auto& counters = counters_[static_cast<size_t>(index)];
    counters = std::make_unique<StreamCounters>(kind);
    WorkerPool& pool = computes ? *parts_.compute_pool : *parts_.copy_pool;
    auto work = std::make_unique<EmulatedWork>(parts_.kernels, pool, tiers_, *counters);
    work->set_pace({.profile = parts_.spec.pace,
                    .link = link_.bytes_per_second() > 0 ? &link_ : nullptr,
                    .slowdown = parts_.spec.slowdown});
    work->hold_copies(parts_.spec.held, parts_.spec.fault_seed);
    if (parts_.spec.hollow) {
      work->set_hollow(kHollowSeed);
    }
    if (parts_.timeline != nullptr) {
      work->set_track(&parts_.timeline->add_track(
          "accelerator", fmt::format("{}: {}", index, stream_kind_name(kind))));
    }
    const StreamId stream = streams_.add(
        std::move(work),
        {.spin = pool.spin(), .cpus = computes ? std::vector<int32_t>{cpus.front()} : cpus});
    CHECK(raw(stream) == index, "stream {} of {}", raw(stream), index);
    stream_count_.store(index + 1, std::memory_order_release);
    return stream;
  }

  void launch(StreamId stream, const Op& op) override {
    check_op(op, kind_of(stream), tiers_);
    streams_.launch(stream, op);
  }

  EventId record(StreamId stream) override { return streams_.record(stream); }
  EventId record_polled(StreamId stream) override { return streams_.record_polled(stream); }

  void wait(StreamId stream, EventId event) override {
    CHECK(kind_of(stream) != StreamKind::kCompute || StreamSet::stream_of(event) == stream ||
              streams_.query(event) || allowed(event),
          "compute stream {} would wait for stream {}", raw(stream),
          raw(StreamSet::stream_of(event)));
    streams_.wait(stream, event);
  }

  [[nodiscard]] bool query(EventId event) const override { return streams_.query(event); }
  void synchronize(EventId event) override { streams_.synchronize(event); }
  void set_listener(std::function<void()> on_event) override {
    streams_.set_listener(std::move(on_event));
  }

  void allow_wait(EventId event) override {
    std::erase_if(allowed_, [&](EventId one) { return streams_.query(one); });
    allowed_.push_back(event);
  }

  [[nodiscard]] DeviceStatistics statistics() const override;

 private:
  [[nodiscard]] StreamKind kind_of(StreamId stream) const {
    CHECK(raw(stream) >= 0 && raw(stream) < stream_count_.load(std::memory_order_acquire),
          "stream {}", raw(stream));
    return counters_[static_cast<size_t>(raw(stream))]->kind();
  }
  [[nodiscard]] bool allowed(EventId event) const {
    return std::find(allowed_.begin(), allowed_.end(), event) != allowed_.end();
  }

  Parts parts_;
  const Tiers tiers_;
  Link link_;
  std::array<std::unique_ptr<StreamCounters>, WorkerPool::kMaxDesks> counters_;
  std::atomic<int32_t> stream_count_{0};
  std::vector<EventId> allowed_;  // issuing thread
  StreamSet streams_;             // last: its threads use all of the above
};

DeviceStatistics EmulatedDevice::statistics() const {
  DeviceStatistics sum;
  const int32_t count = stream_count_.load(std::memory_order_acquire);
  for (int32_t i = 0; i < count; ++i) {
    const StreamCounters& one = *counters_[static_cast<size_t>(i)];
    sum.streams.push_back({.kind = one.kind(),
                           .ops = one.ops(),
                           .events = one.events(),
                           .busy = one.busy(),
                           .overruns = one.overruns(),
                           .lateness = one.lateness()});
    sum.device_to_host_bytes += one.bytes(CopyDirection::kDeviceToHost);
    sum.host_to_device_bytes += one.bytes(CopyDirection::kHostToDevice);
    sum.device_to_device_bytes += one.bytes(CopyDirection::kDeviceToDevice);
    sum.pageable_bytes += one.bytes(CopyDirection::kPageableToDevice);
  }
  return sum;
}

Status check_memory(const EmulatedAcceleratorOptions& options) {
  const int64_t left = machine_memory().free_bytes;
  // Of a hollow device's memory only a small part is ever touched.
  const int64_t on_device = options.spec.hollow ? 0 : options.device_memory_bytes;
  const bool fits = on_device <= left && options.host_memory_bytes <= left - on_device;
  if (!fits) {
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("{} of device and {} of host memory are more than the {} that this "
                             "machine has free; use a smaller --device-memory or --host-memory",
                             format_bytes(options.device_memory_bytes),
                             format_bytes(options.host_memory_bytes), format_bytes(left)),
                 "--device-memory"};
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<EmulatedAccelerator>> make_emulated_accelerator(
    const EmulatedAcceleratorOptions& options) {
  Parts parts;
  parts.spec = options.spec;
  parts.timeline = options.timeline;
  ASSIGN_OR_RETURN(EmulatedCores cores, divide_cores(options.spec, usable_nodes()));
  ASSIGN_OR_RETURN(parts.device_memory, Arena::create({.tier = "device", .flag = "--device-memory"},
                                                      options.device_memory_bytes));
  // Times count where it is paced, so its pinned memory is there from the start.
  ASSIGN_OR_RETURN(
      parts.host_memory,
      Arena::create({.tier = "host", .flag = "--host-memory"}, options.host_memory_bytes,
                    options.spec.pace != nullptr ? PagesCome::kAtOnce : PagesCome::kAtUse));
  RETURN_IF_ERROR(check_memory(options));
  const auto threads = static_cast<int32_t>(cores.accelerator.size());
  ASSIGN_OR_RETURN(parts.compute_pool,
                   WorkerPool::create({.threads = threads,
                                       .spin = threads >= kSpinFromCores ? kSpin : Nanos{0},
                                       .seats = seats_at(cores.accelerator)}));
  const KernelChoice choice = options.isa ? KernelChoice{*options.isa, {}}
                                          : choose_kernels(options.products, *parts.compute_pool);
  ASSIGN_OR_RETURN(parts.kernels, kernels::kernel_set(choice.choice));
  ASSIGN_OR_RETURN(parts.copy_pool, WorkerPool::create({.threads = 1}));
  parts.caps = {
      .name = fmt::format("emulated accelerator ({}, {}, {} core{}, {} device and "
                          "{} host memory)",
                          describe_pace(options.spec), parts.kernels.all().name, threads,
                          threads == 1 ? "" : "s", format_bytes(options.device_memory_bytes),
                          format_bytes(options.host_memory_bytes)),
      .backend = "emulated_accelerator",
      .identity = fmt::format("emulated accelerator ({}, {} and {} cores, link {:g} GB/s, slowdown "
                              "{:g})",
                              describe_pace(options.spec), threads, cores.host.size(),
                              options.spec.link_bytes_per_second() / 1e9, options.spec.slowdown),
      .kernels = kernels::choice_text(choice.choice),
      .kernel_why = choice.times,
      .threads = threads,
      .memory_bytes = options.device_memory_bytes,
      .free_memory_bytes = options.device_memory_bytes,
      .cpus = std::move(cores.accelerator),
      .needs_weights = !options.spec.hollow};
  parts.host = {.isa = choice.choice.isa,
                .pinned_bytes = options.host_memory_bytes,
                .cpus = std::move(cores.host)};
  return std::unique_ptr<EmulatedAccelerator>(std::make_unique<EmulatedDevice>(std::move(parts)));
}

}  // namespace tandem::device
