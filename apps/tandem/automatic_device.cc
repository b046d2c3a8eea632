#include "automatic_device.h"

#include <optional>
#include <string>
#include <utility>

#include "base/log.h"
#include "default_model.h"
#include "device/cpu/machine.h"
#include "device/open/open.h"
#include "node/device_choice.h"

namespace tandem {
namespace {

constexpr const char* kGpuBackEnd = "cuda";

// The first given option that has a meaning only with two tiers, without dashes. Empty: there is
// none.
std::string option_of_two_tiers(const NodeOptions& node) {
  const NodeOptions usual;
  if (node.host_memory_bytes != usual.host_memory_bytes) {
    return "host-memory";
  }
  if (node.timeline_out != usual.timeline_out) {
    return "timeline-out";
  }
  if (node.prompts_to_host != usual.prompts_to_host) {
    return "prompts-to-host";
  }
  if (node.group_stages != usual.group_stages) {
    return "group-stages";
  }
  if (node.hop_patience != usual.hop_patience) {
    return "hop-patience";
  }
  return "";
}

// As if the GPU had been named, with host memory for the second tier.
ServeFlags flags_for_gpu(const ServeFlags& flags) {
  ServeFlags on_gpu = flags;
  on_gpu.device = kGpuBackEnd;
  if (flags.node.host_memory_bytes == 0) {
    on_gpu.node.host_memory_bytes = automatic_host_memory(
        device::machine_memory().free_bytes,
        flags.node.model == default_model() ? kDefaultModelHostBytes : kMaxAutomaticHostBytes);
  }
  return on_gpu;
}

// Kernels of the CPUs that are named are wanted for the whole model, unless another option is for
// two tiers: then they are for attention on the host.
std::optional<Error> named_kernels(const NodeOptions& node, const AutomaticGpu& gpu) {
  if (!node.device.isa.has_value() || !gpu.required_by.empty()) {
    return std::nullopt;
  }
  return invalid_argument(
      "--isa names kernels of the CPUs; to use them beside a GPU, for attention on the host, give "
      "--device cuda",
      "isa");
}

template <class Outcome>
std::optional<Error> error_of(const Outcome& outcome) {
  return outcome.ok() ? std::nullopt : std::optional(outcome.error());
}

}  // namespace

Status resolve_to_serve(ServeFlags& flags) {
  if (flags.device != "auto" || flags.node.accelerator.has_value()) {
    return resolve(flags);
  }
  const AutomaticGpu gpu{.required_by = option_of_two_tiers(flags.node),
                         .may_reduce_host_memory = flags.node.host_memory_bytes == 0};
  GpuFacts facts{.has_plugin = device::has_plugin(kGpuBackEnd)};
  ServeFlags on_gpu = flags_for_gpu(flags);
  if (facts.has_plugin) {
    facts.options = named_kernels(flags.node, gpu);
    if (!facts.options.has_value()) {
      facts.options = error_of(resolve(on_gpu));
    }
  }
  if (!facts.has_plugin || gpu.required_by.empty()) {
    RETURN_IF_ERROR(resolve(flags));  // wrong for the CPUs, too
  }
  if (!facts.options.has_value()) {
    facts.probe = error_of(device::find_device({.backend = kGpuBackEnd, .options = ""}));
  }
  ASSIGN_OR_RETURN(const DeviceChoice choice, choose_device(gpu, facts));
  if (choice.takes_gpu) {
    on_gpu.device = flags.device;
    on_gpu.node.automatic_gpu = gpu;
    flags = std::move(on_gpu);
  } else if (facts.has_plugin || flags.check) {
    log::info("{}", describe(choice));
  }
  return {};
}

}  // namespace tandem
