// Prometheus series of what goes on between two tiers. Threads: one writer.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include "observe/records.h"

namespace tandem::observe {

class TierMetrics {
 public:
  TierMetrics(prometheus::Registry& registry, const prometheus::Labels& labels);
  void set(const EngineGauges& gauges);
  void set(const TierRecord& record);

 private:
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
  prometheus::Counter& attended_bytes_;
  prometheus::Counter& attention_seconds_;
  TierRecord last_;
};

}  // namespace tandem::observe
