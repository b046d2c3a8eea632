#include "exec/host_tier/local_attention.h"

#include <cmath>
#include <iterator>

#include "base/check.h"
#include "exec/workspaces.h"

namespace tandem {
namespace {

// Workers with cores of their own look for work across the gap between two groups: waking a worker
// that sleeps costs the engine thread some 10 us.
constexpr Nanos kWorkerSpin = std::chrono::microseconds(1000);

// Planted: how late the latest answers come.
constexpr int kLatestInPatiences = 3;

}  // namespace

piggyback::AttentionSpec attention_spec(const model::ModelConfig& config,
                                        const model::Weights& weights,
                                        const ExecutorOptions& options, const HopMemory& memory) {
  std::vector<int32_t> windows;
  for (int32_t layer = 0; layer < config.layers; ++layer) {
    windows.push_back(config.window_of(layer));
  }
  return {.layout = kv_layout_for(config, options),
          .kv = memory.host->kv->data(),
          .routed = memory.outbox_row(0),
          .routed_row_bytes = memory.routed_row_bytes,
          .results = memory.results_row(0),
          .result_row_bytes = memory.attended_row_bytes,
          .result_type = weights.numbers.attended,
          .heads = config.heads,
          .scale = 1.0F / std::sqrt(static_cast<float>(config.head_dim)),
          .windows = std::move(windows),
          .owner = memory.host};
}

Result<std::unique_ptr<piggyback::AttentionWorkers>> start_attention_workers(
    const piggyback::AttentionSpec& spec, const model::ModelConfig& config,
    const ExecutorOptions& options, const device::Device& device, HostMemory& memory) {
  ASSIGN_OR_RETURN(const kernels::Kernels* kernels, kernels::kernels_for(device.host().isa));
  if (options.host.faults.total() > 0) {
    piggyback::WorkerFaults faults = options.host.faults;
    if (faults.late_by == Nanos{0}) {
      faults.late_by = kLatestInPatiences * options.host.hop_patience;
    }
    memory.faults = std::make_unique<piggyback::FaultyWorkers>(faults);
  }
  memory.clock = options.host.clock->for_threads();
  CHECK(memory.clock != nullptr, "threads of this process attend, but not in the machine's time");
  const std::vector<int32_t>& cpus = device.host().cpus;
  const int32_t threads = options.host.threads;
  return piggyback::AttentionWorkers::create(
      {.spec = spec,
       .kernels = kernels,
       .partials = partial_rooms(config, options),
       .partial_memory = memory.partials->data(),
       .threads = threads,
       .cpus = cpus,
       .clock = memory.clock.get(),
       .spin = threads <= std::ssize(cpus) ? kWorkerSpin : Nanos{0},
       .hook = memory.faults.get()});
}

}  // namespace tandem
