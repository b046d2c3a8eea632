#include "engine/gauges.h"

#include <algorithm>

namespace tandem {
namespace {

int64_t waiting_of(const SequenceTable& table, ServiceClass service_class) {
  return static_cast<int64_t>(table.waiting().size(service_class));
}

}  // namespace

observe::EngineGauges gauges_of(const SequenceTable& table, const KvManager& kv,
                                bool host_suspended) {
  return {
      .running = std::ssize(table.running()) + std::ssize(table.offloaded()),
      .waiting = std::ssize(table.waiting()),
      .waiting_by_class = {waiting_of(table, ServiceClass::kLatencySensitive),
                           waiting_of(table, ServiceClass::kBestEffort)},
      .blocks_in_use = kv.total_blocks() - kv.free_blocks(),
      .total_blocks = kv.total_blocks(),
      .offloaded = std::ssize(table.offloaded()),
      .moving = std::ranges::count_if(
          table.offloaded(), [](const LiveSequence* sequence) { return sequence->transfer != 0; }),
      .host_blocks_in_use = kv.total_blocks(Tier::kHost) - kv.free_blocks(Tier::kHost) -
                            kv.blocks_out_of_use(Tier::kHost),
      .host_blocks = kv.total_blocks(Tier::kHost),
      .host_blocks_out_of_use = kv.blocks_out_of_use(Tier::kHost),
      .host_suspended = host_suspended};
}

observe::TierRecord tiers_of(const StepExecutor& executor) {
  return {.counts = executor.tier_counts(), .max_rows = executor.limits().max_batched_tokens};
}

}  // namespace tandem
