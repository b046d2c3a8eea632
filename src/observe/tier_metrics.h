// Prometheus series about the traffic between two tiers. Threads: one writer.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include "base/clock.h"
#include "observe/records.h"
#include "observe/regime.h"

namespace tandem::observe {

class TierMetrics {
 public:
  // `clock` must outlive the metrics.
  TierMetrics(prometheus::Registry& registry, const prometheus::Labels& labels, const Clock& clock);
  void set(const EngineGauges& gauges);
  void set(const TierRecord& record);
  void add(const StepRecord& record);
  void set(const PaceRecord& record);  // any thread

 private:
  void show_regime();

  prometheus::Gauge& offloaded_;
  prometheus::Gauge& host_blocks_;
  prometheus::Gauge& host_blocks_in_use_;
  prometheus::Gauge& host_blocks_out_of_use_;
  prometheus::Gauge& host_suspended_;
  prometheus::Gauge& workers_lost_;
  prometheus::Gauge& hops_in_flight_;
  prometheus::Counter& visits_;
  prometheus::Counter& hops_;
  prometheus::Counter& doubted_;
  prometheus::Counter& hop_bytes_out_;
  prometheus::Counter& hop_bytes_back_;
  prometheus::Counter& offloaded_bytes_;
  prometheus::Counter& onloaded_bytes_;
  prometheus::Counter& prefix_blocks_fetched_;
  prometheus::Counter& mode_changes_;
  prometheus::Counter& lane_moves_;
  prometheus::Counter& let_in_;
  prometheus::Counter& straight_to_host_;
  prometheus::Counter& attended_bytes_;
  prometheus::Counter& attention_seconds_;
  prometheus::Family<prometheus::Gauge>& limits_;
  prometheus::Family<prometheus::Gauge>& regimes_;
  prometheus::Family<prometheus::Gauge>& pace_;
  const prometheus::Labels labels_;
  TierCounts last_;
  RegimeMeter meter_;
  int64_t offloaded_now_ = 0;
  const Clock& clock_;
};

}  // namespace tandem::observe
