#include "engine/gauges.h"

namespace tandem {

observe::EngineGauges gauges_of(const SequenceTable& table, const KvManager& kv,
                                bool host_suspended) {
  return {.running = std::ssize(table.running()) + std::ssize(table.offloaded()),
          .waiting = std::ssize(table.waiting()),
          .blocks_in_use = kv.total_blocks() - kv.free_blocks(),
          .total_blocks = kv.total_blocks(),
          .offloaded = std::ssize(table.offloaded()),
          .host_blocks_in_use = kv.total_blocks(Tier::kHost) - kv.free_blocks(Tier::kHost) -
                                kv.blocks_out_of_use(Tier::kHost),
          .host_blocks = kv.total_blocks(Tier::kHost),
          .host_blocks_out_of_use = kv.blocks_out_of_use(Tier::kHost),
          .host_suspended = host_suspended};
}

observe::TierRecord tiers_of(const StepExecutor& executor) {
  const TierCounts counts = executor.tier_counts();
  return {.visits = counts.visits,
          .hops = counts.hops,
          .doubted = counts.doubted,
          .hop_bytes_out = counts.bytes_to_host,
          .hop_bytes_back = counts.bytes_from_host,
          .offloaded_bytes = counts.offloaded_bytes,
          .onloaded_bytes = counts.onloaded_bytes,
          .attended_bytes = counts.attended_bytes,
          .attention_time = counts.attention_time,
          .hops_in_flight = counts.hops_in_flight,
          .workers_lost = counts.workers_lost,
          .returning_time = counts.returning_time,
          .workers = counts.workers,
          .layers = counts.layers,
          .max_rows = executor.limits().max_batched_tokens};
}

}  // namespace tandem
