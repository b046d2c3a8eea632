// What tests of whole simulations share: a machine, a load, and a run that must succeed.
#pragma once

#include "base/check.h"
#include "model/make.h"
#include "node/option_table.h"
#include "sim/simulate.h"

namespace tandem::sim {

inline SimulateOptions an_a100() {
  SimulateOptions options;
  options.machine = {.name = "a100",
                     .accelerator = *device::find_profile("a100"),
                     .memory_bytes = int64_t{64} << 30,
                     .link_bytes = 25e9};
  options.shape = *model::preset_config("8B");
  options.node.max_model_len = 8192;
  options.node.policy = "accel_only";
  return options;
}

// Best effort leaves the accelerator while a quarter of the blocks is free, and returns to a half:
// much is offloaded.
inline void offload_early(NodeOptions& node) {
  for (const OptionDescriptor& option : node_option_table(node)) {
    const int64_t percent = option.name == "offload-below"  ? 25
                            : option.name == "onload-above" ? 50
                                                            : 0;
    CHECK(percent == 0 || option.value.set(percent).ok(), "{} is a share in percent", percent);
  }
}

inline loadgen::Load fixed_load(int64_t requests, double rate, int32_t input, int32_t output) {
  loadgen::LoadStream stream;
  stream.options.arrivals.rate_per_s = rate;
  stream.options.requests = requests;
  stream.options.input = workload::Lengths::fixed(input);
  stream.options.output = workload::Lengths::fixed(output);
  stream.groups = {{.name = "chat"}};
  stream.models = {"8B"};
  return *loadgen::make_load({stream}, 7);
}

inline Simulated must_run(const SimulateOptions& options, const loadgen::Load& load) {
  Result<Simulated> simulated = simulate(options, load, {});
  CHECK(simulated.ok(), "{}", simulated.error().message);
  return *std::move(simulated);
}

}  // namespace tandem::sim
