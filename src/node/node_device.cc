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
void stay_on_nodes(const device::HostCaps& host) {
  std::vector<int32_t> cpus;
  for (const device::NodeUse& node : host.nodes) {
    cpus.insert(cpus.end(), node.cpus.begin(), node.cpus.end());
  }
  if (!cpus.empty()) {
    pin_this_thread(cpus);
  }
}

}  // namespace

NodeDevice::NodeDevice(std::string timeline_out) : timeline_out_(std::move(timeline_out)) {
  if (!timeline_out_.empty()) {
    timeline_ = std::make_unique<observe::Timeline>(kSpansPerTrack);
  }
}

Result<std::unique_ptr<NodeDevice>> NodeDevice::open(const NodeOptions& options,
                                                     const model::ModelConfig& shape,
                                                     const model::WeightFormats& format) {
  std::unique_ptr<NodeDevice> node(new NodeDevice(options.timeline_out));
  const RunKernels run = find_kernels(options, shape, format);
  device::DeviceSpec spec{.cpu = options.device,
                          .accelerator = options.accelerator,
                          .device_memory_bytes = options.memory_bytes,
                          .host_memory_bytes = options.host_memory_bytes,
                          .timeline = node->timeline()};
  spec.cpu.isa = run.choice;
  spec.cpu.products = run.products;
  ASSIGN_OR_RETURN(node->device_, device::open(spec));
  if (options.device.numa.mode == device::NumaMode::kNodes) {
    stay_on_nodes(node->device_->host());
  }
  node->kernels_from_ = settle_kernels(run, node->caps());
  return node;
}

std::unique_ptr<NodeDevice> NodeDevice::of(std::unique_ptr<device::Device> device) {
  std::unique_ptr<NodeDevice> node(new NodeDevice(""));
  node->device_ = std::move(device);
  return node;
}

std::optional<observe::PaceRecord> NodeDevice::pace() const {
  if (device_ == nullptr || device_->pace().empty()) {
    return std::nullopt;
  }
  const device::DeviceStatistics sums = device_->statistics();
  return observe::PaceRecord{.ops = sums.ops(), .overruns = sums.overruns()};
}

// A figure from a run whose ops took longer than the accelerator that is played is no figure.
void NodeDevice::report_pace() const {
  const std::optional<observe::PaceRecord> kept = pace();
  if (!kept.has_value()) {
    return;
  }
  const double share = device_->statistics().overrun_share();
  const std::string text =
      fmt::format("paced run ({}): {} of {} ops ended later than modelled ({:.3f} %)",
                  device_->pace(), kept->overruns, kept->ops, 100 * share);
  if (share > device::kMaxOverrunShare) {
    log::warn(
        "{}: more than {:g} %, so this run is INVALID as a measurement; use a larger slowdown",
        text, 100 * device::kMaxOverrunShare);
  } else {
    log::info("{}: valid", text);
  }
}

void NodeDevice::end() {
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
