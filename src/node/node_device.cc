#include "node/node_device.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/affinity.h"
#include "base/log.h"
#include "node/run_kernels.h"

namespace tandem {
namespace {

constexpr int64_t kSpansPerTrack = 1 << 16;  // the last ones are kept

// The threads that this one starts from here on, and what they touch, stay where compute is.
void stay_on_nodes(const device::DeviceCaps& caps) {
  std::vector<int32_t> cpus;
  for (const device::NodeUse& node : caps.nodes) {
    cpus.insert(cpus.end(), node.cpus.begin(), node.cpus.end());
  }
  if (!cpus.empty()) {
    pin_this_thread(cpus);
  }
}

Result<std::unique_ptr<device::Device>> open_cpu(const NodeOptions& options,
                                                 const RunKernels& run) {
  device::CpuDeviceOptions device = options.device;
  device.isa = run.choice;
  device.products = run.products;
  ASSIGN_OR_RETURN(std::unique_ptr<device::Device> opened, device::make_cpu_device(device));
  if (options.device.numa.mode == device::NumaMode::kNodes) {
    stay_on_nodes(opened->caps());
  }
  return opened;
}

Result<std::unique_ptr<device::EmulatedAccelerator>> open_emulated(const NodeOptions& options,
                                                                   const RunKernels& run,
                                                                   observe::Timeline* timeline) {
  if (options.memory_bytes == 0 || options.host_memory_bytes == 0) {
    return invalid_argument(
        "an emulated accelerator needs the sizes of both memories: give --device-memory and "
        "--host-memory, e.g. --device-memory 4GiB --host-memory 8GiB",
        options.memory_bytes == 0 ? "device-memory" : "host-memory");
  }
  return device::make_emulated_accelerator({.spec = *options.emulation,
                                            .device_memory_bytes = options.memory_bytes,
                                            .host_memory_bytes = options.host_memory_bytes,
                                            .isa = run.choice,
                                            .products = run.products,
                                            .timeline = timeline});
}

}  // namespace

NodeDevice::NodeDevice(const NodeOptions& options)
    : spec_(options.emulation), timeline_out_(options.timeline_out) {
  if (!timeline_out_.empty()) {
    timeline_ = std::make_unique<observe::Timeline>(kSpansPerTrack);
  }
}

Result<std::unique_ptr<NodeDevice>> NodeDevice::open(const NodeOptions& options,
                                                     const model::ModelConfig& shape,
                                                     ElementType dtype) {
  std::unique_ptr<NodeDevice> node(new NodeDevice(options));
  const RunKernels run = find_kernels(options, shape, dtype);
  if (options.emulation.has_value()) {
    ASSIGN_OR_RETURN(std::unique_ptr<device::EmulatedAccelerator> device,
                     open_emulated(options, run, node->timeline()));
    node->emulated_ = device.get();
    node->device_ = std::move(device);
  } else {
    ASSIGN_OR_RETURN(node->device_, open_cpu(options, run));
  }
  node->kernels_from_ = settle_kernels(run, node->caps());
  return node;
}

std::optional<observe::PaceRecord> NodeDevice::pace() const {
  if (emulated_ == nullptr || spec_->link_bytes_per_second() <= 0) {
    return std::nullopt;
  }
  const device::EmulationStatistics sums = emulated_->statistics();
  return observe::PaceRecord{.ops = sums.ops(), .overruns = sums.overruns()};
}

// A figure from a run whose ops took longer than the accelerator that is played is no figure.
void NodeDevice::report_pace() const {
  const std::optional<observe::PaceRecord> kept = pace();
  if (!kept.has_value()) {
    return;
  }
  const double share = emulated_->statistics().overrun_share();
  const std::string text =
      fmt::format("paced run ({}): {} of {} ops ended later than modelled ({:.3f} %)",
                  device::describe_pace(*spec_), kept->overruns, kept->ops, 100 * share);
  if (share > device::kMaxOverrunShare) {
    log::warn(
        "{}: more than {:g} %, so this run is INVALID as a measurement; use a larger slowdown",
        text, 100 * device::kMaxOverrunShare);
  } else {
    log::info("{}: valid", text);
  }
}

void NodeDevice::end() {
  emulated_ = nullptr;
  device_.reset();
  if (timeline_ == nullptr) {
    return;
  }
  const Status written = timeline_->write_chrome_trace(timeline_out_);
  if (written.ok()) {
    log::info("timeline: {} (open it in Perfetto or chrome://tracing)", timeline_out_);
  } else {
    log::error("timeline: {}", written.error().message);
  }
}

}  // namespace tandem
