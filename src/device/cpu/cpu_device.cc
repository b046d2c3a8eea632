#include "device/cpu/cpu_device.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/units.h"
#include "device/cpu/host_formats.h"
#include "device/cpu/machine.h"
#include "device/cpu/op_runner.h"
#include "device/cpu/op_times.h"
#include "device/cpu/pages.h"
#include "device/cpu/placement.h"
#include "device/cpu/proc_text.h"
#include "device/cpu/seats.h"
#include "device/cpu/stream_set.h"
#include "device/cpu/worker_pool.h"

namespace tandem::device {
namespace {

constexpr int32_t kMaxThreads = 1024;
constexpr int32_t kPinFromThreads = 8;
// Long enough to bridge the gap between two ops of a step, short enough that a sleeping machine
// stays cool and a neighbour loses little.
constexpr Nanos kSpin = std::chrono::microseconds(40);
// An idle stream looks longer: until the engine has committed a step and launched the next, so that
// waking it is not part of every step.
constexpr Nanos kStreamSpin = std::chrono::microseconds(160);
// Where there are more compute threads than CPUs, whoever spins keeps another from its work.
constexpr Nanos kNoSpin{0};

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
  struct Parts {
    kernels::KernelSet kernels;
    std::unique_ptr<WorkerPool> pool;
    std::unique_ptr<Placement> placement;  // null: nothing is placed
    std::vector<int32_t> stream_cpus;      // a stream's thread computes as one of the first node
    AcceleratorCaps caps;
    HostCaps host;
    OpListener* op_times = nullptr;  // null: ops are not timed
  };

  explicit CpuDevice(Parts parts)
      : kernels_(std::move(parts.kernels)),
        pool_(std::move(parts.pool)),
        placement_(std::move(parts.placement)),
        stream_cpus_(std::move(parts.stream_cpus)),
        caps_(std::move(parts.caps)),
        host_(std::move(parts.host)),
        op_times_(parts.op_times) {}

  CpuDevice(const CpuDevice&) = delete;
  CpuDevice& operator=(const CpuDevice&) = delete;

  [[nodiscard]] const AcceleratorCaps& caps() const override { return caps_; }
  [[nodiscard]] const HostCaps& host() const override { return host_; }

  [[nodiscard]] const Formats& formats() const override { return host_formats(); }

  using Device::allocate;
  [[nodiscard]] Result<std::unique_ptr<Memory>> allocate(const MemoryRequest& request) override {
    const int64_t bytes = request.bytes;
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
                      format_bytes(bytes),
                      request.kind == MemoryKind::kDevice ? "device" : "staging",
                      format_bytes(std::max<int64_t>(left, 0)), format_bytes(caps_.memory_bytes)),
          {}};
    }
    auto memory = std::make_unique<CpuMemory>(std::move(*pages), ledger_);
    if (placement_ != nullptr) {
      place(request, *memory);
    }
    return std::unique_ptr<Memory>(std::move(memory));
  }

  StreamId create_stream(StreamKind) override {
    std::unique_ptr<StreamWork> work = std::make_unique<OpRunner>(kernels_, *pool_);
    if (op_times_ != nullptr) {
      work = timed(std::move(work), *op_times_);
    }
    return streams_.add(std::move(work), {.spin = pool_->spin() > kNoSpin ? kStreamSpin : kNoSpin,
                                          .cpus = stream_cpus_});
  }
  void launch(StreamId stream, const Op& op) override { streams_.launch(stream, op); }
  EventId record(StreamId stream) override { return streams_.record(stream); }
  EventId record_polled(StreamId stream) override { return streams_.record_polled(stream); }
  void wait(StreamId stream, EventId event) override { streams_.wait(stream, event); }
  [[nodiscard]] bool query(EventId event) const override { return streams_.query(event); }
  void synchronize(EventId event) override { streams_.synchronize(event); }
  void set_listener(std::function<void()> on_event) override {
    streams_.set_listener(std::move(on_event));
  }

 private:
  // Before anything touches it.
  void place(const MemoryRequest& request, const CpuMemory& memory) {
    if (request.purpose == MemoryPurpose::kKv) {
      placement_->spread({memory.data(), memory.bytes(), request.unit_bytes});
    }
    for (const WeightExtent& extent : request.matrices) {
      kernels::PackedMatrix matrix = packed(extent.matrix);
      matrix.data = memory.data() + extent.offset;
      placement_->place_panels(matrix);
    }
  }

  const kernels::KernelSet kernels_;
  std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>();
  std::unique_ptr<WorkerPool> pool_;
  const std::unique_ptr<Placement> placement_;
  const std::vector<int32_t> stream_cpus_;
  const AcceleratorCaps caps_;
  const HostCaps host_;
  OpListener* const op_times_;
  StreamSet streams_;  // last: its threads use the pool
};

struct Layout {
  std::vector<NodeShare> nodes;
  int32_t usable_cpus = 0;  // of the nodes that were chosen
  bool bound = false;       // threads may not run wherever the process may
  bool told = false;        // there are several nodes, and they are looked at
};

Result<Layout> lay_out_threads(const CpuDeviceOptions& options) {
  const Topology topology = options.topology ? *options.topology : read_topology(allowed_cpus());
  ASSIGN_OR_RETURN(const std::vector<MemoryNode> chosen, choose_nodes(topology, options.numa));
  const int32_t usable = quota_cpus(cpu_count(chosen));
  const int32_t threads = options.threads > 0 ? options.threads : usual_threads(chosen);
  return Layout{.nodes = share_threads(chosen, threads),
                .usable_cpus = usable,
                .bound = cpu_count(chosen) < cpu_count(topology) || chosen.size() > 1,
                .told = topology.size() > 1 && options.numa.mode != NumaMode::kOff};
}

std::vector<Seat> seats_for(const Layout& layout, Pinning pinning) {
  const int32_t threads = shares_of(layout.nodes).threads();
  if (pinning == Pinning::kOn || (pinning == Pinning::kAuto && threads >= kPinFromThreads)) {
    return seat_threads(layout.nodes, SeatWidth::kCpu);
  }
  return layout.bound ? seat_threads(layout.nodes, SeatWidth::kNode) : std::vector<Seat>{};
}

void describe_nodes(const Layout& layout, AcceleratorCaps& caps, HostCaps& host) {
  if (!layout.told) {
    return;
  }
  std::vector<int32_t> ids;
  for (const NodeShare& share : layout.nodes) {
    const MemoryNode& node = share.node;
    ids.push_back(node.id);
    std::vector<int32_t> cpus = node.cpus;
    std::sort(cpus.begin(), cpus.end());
    host.nodes.push_back(
        {node.id, share.threads, std::move(cpus), node.memory_bytes, node.free_bytes});
    host.near_free_bytes += node.free_bytes;
  }
  host.near_free_bytes = std::min(host.near_free_bytes, caps.free_memory_bytes);
  caps.name.insert(caps.name.size() - 1,
                   fmt::format(", node{} {}", ids.size() == 1 ? "" : "s", format_ranges(ids)));
}

}  // namespace

int32_t usual_threads(std::span<const MemoryNode> nodes) {
  return std::min({core_count(nodes), quota_cpus(cpu_count(nodes)), kMaxThreads});
}

Result<std::unique_ptr<Device>> make_cpu_device(const CpuDeviceOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return invalid_argument(fmt::format("{} compute threads: must be 1 .. {}, or 0 for all",
                                        options.threads, kMaxThreads),
                            "threads");
  }
  ASSIGN_OR_RETURN(const Layout layout, lay_out_threads(options));
  const int32_t threads = shares_of(layout.nodes).threads();
  ASSIGN_OR_RETURN(std::unique_ptr<WorkerPool> pool,
                   WorkerPool::create({.threads = threads,
                                       .spin = threads <= layout.usable_cpus ? kSpin : kNoSpin,
                                       .seats = seats_for(layout, options.pinning)}));
  const KernelChoice choice =
      options.isa ? KernelChoice{*options.isa, {}} : choose_kernels(options.products, *pool);
  const MachineMemory memory = machine_memory();
  CpuDevice::Parts parts;
  ASSIGN_OR_RETURN(parts.kernels, kernels::kernel_set(choice.choice));
  parts.pool = std::move(pool);
  parts.placement =
      make_placement(layout.nodes, options.placer == nullptr ? kernel_placer() : *options.placer);
  if (layout.bound) {
    parts.stream_cpus = layout.nodes.front().node.cpus;
  }
  parts.caps = {.name = fmt::format("cpu ({}, {} thread{})", parts.kernels.all().name, threads,
                                    threads == 1 ? "" : "s"),
                .backend = "cpu",
                .kernels = kernels::choice_text(choice.choice),
                .kernel_why = choice.times,
                .threads = threads,
                .memory_bytes = memory.total_bytes,
                .free_memory_bytes = memory.free_bytes};
  parts.host.isa = choice.choice.isa;
  describe_nodes(layout, parts.caps, parts.host);
  parts.caps.identity = parts.caps.name;
  parts.op_times = options.op_times;
  return std::unique_ptr<Device>(std::make_unique<CpuDevice>(std::move(parts)));
}

}  // namespace tandem::device
