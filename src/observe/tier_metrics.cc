#include "observe/tier_metrics.h"

#include <cmath>
#include <string>
#include <utility>

#include "base/units.h"

namespace tandem::observe {
namespace {

struct Series {
  prometheus::Registry& registry;
  const prometheus::Labels& labels;

  prometheus::Gauge& gauge(const std::string& name, const std::string& help) const {
    return prometheus::BuildGauge()
        .Name("tandem_" + name)
        .Help(help)
        .Register(registry)
        .Add(labels);
  }
  prometheus::Family<prometheus::Gauge>& family(const std::string& name,
                                                const std::string& help) const {
    return prometheus::BuildGauge().Name("tandem_" + name).Help(help).Register(registry);
  }
  prometheus::Counter& counter(const std::string& name, const std::string& help,
                               const std::string& direction = "") const {
    prometheus::Labels all = labels;
    if (!direction.empty()) {
      all.emplace("direction", direction);
    }
    return prometheus::BuildCounter().Name("tandem_" + name).Help(help).Register(registry).Add(all);
  }
};

constexpr const char* kHopBytes = "Rows of offloaded tokens between the tiers";
constexpr const char* kTransferBytes = "KV blocks moved between the tiers";

}  // namespace

TierMetrics::TierMetrics(prometheus::Registry& registry, const prometheus::Labels& labels,
                         const Clock& clock)
    : offloaded_(Series{registry, labels}.gauge("offloaded_sequences",
                                                "Running sequences whose KV is on the host")),
      host_blocks_(Series{registry, labels}.gauge("host_kv_blocks", "KV blocks of the host")),
      host_blocks_in_use_(Series{registry, labels}.gauge(
          "host_kv_blocks_in_use", "KV blocks of the host held by sequences")),
      host_blocks_out_of_use_(Series{registry, labels}.gauge(
          "host_kv_blocks_out_of_use",
          "KV blocks of the host that a worker which hangs may still write to")),
      host_suspended_(Series{registry, labels}.gauge(
          "host_suspended", "1 while nothing is offloaded because the host failed repeatedly")),
      workers_lost_(Series{registry, labels}.gauge(
          "host_workers_lost", "Workers of the host that hang inside a kernel")),
      hops_in_flight_(
          Series{registry, labels}.gauge("hops_in_flight", "Hops that have not come back")),
      visits_(Series{registry, labels}.counter("visits_total",
                                               "Rows of offloaded tokens in stages of steps")),
      hops_(Series{registry, labels}.counter("hops_total",
                                             "Layers of offloaded tokens attended on the host")),
      doubted_(Series{registry, labels}.counter(
          "hop_doubts_total", "Attempts on the host that failed or took too long")),
      hop_bytes_out_(Series{registry, labels}.counter("hop_bytes_total", kHopBytes, "to_host")),
      hop_bytes_back_(Series{registry, labels}.counter("hop_bytes_total", kHopBytes, "from_host")),
      offloaded_bytes_(
          Series{registry, labels}.counter("tier_transfer_bytes_total", kTransferBytes, "to_host")),
      onloaded_bytes_(Series{registry, labels}.counter("tier_transfer_bytes_total", kTransferBytes,
                                                       "from_host")),
      prefix_blocks_fetched_(Series{registry, labels}.counter(
          "prefix_blocks_fetched_total",
          "Blocks of cached prefixes copied from the host instead of being computed")),
      mode_changes_(Series{registry, labels}.counter(
          "step_mode_changes_total", "Steps with lanes after one without, or the reverse")),
      lane_moves_(Series{registry, labels}.counter(
          "lane_moves_total", "Tokens under way on the host that a step put into a lane")),
      let_in_(Series{registry, labels}.counter(
          "held_tokens_begun_total",
          "Tokens that began on the host because the bound on holding was reached")),
      straight_to_host_(Series{registry, labels}.counter(
          "prompts_straight_to_host_total",
          "Prompts whose KV was copied to the host layer by layer in the step that computed them")),
      attended_bytes_(Series{registry, labels}.counter("host_attention_bytes_total",
                                                       "K and V read by the host's workers")),
      attention_seconds_(Series{registry, labels}.counter(
          "host_attention_seconds_total", "Time that the host's workers attended, all together")),
      limits_(Series{registry, labels}.family(
          "best_effort_limit_tokens_per_second",
          "Tokens of offloaded sequences that this would allow; 0: unknown")),
      regimes_(Series{registry, labels}.family("regime",
                                               "1 for the limit of decoding offloaded sequences")),
      pace_(Series{registry, labels}.family(
          "paced_ops", "Ops of a paced emulated accelerator; more than 1 % late: invalid")),
      labels_(labels),
      clock_(clock) {}

void TierMetrics::set(const EngineGauges& gauges) {
  offloaded_.Set(static_cast<double>(gauges.offloaded));
  offloaded_now_ = gauges.offloaded;
  host_blocks_.Set(static_cast<double>(gauges.host_blocks));
  host_blocks_in_use_.Set(static_cast<double>(gauges.host_blocks_in_use));
  host_blocks_out_of_use_.Set(static_cast<double>(gauges.host_blocks_out_of_use));
  host_suspended_.Set(gauges.host_suspended ? 1 : 0);
}

void TierMetrics::set(const TierRecord& record) {
  const auto raise = [](prometheus::Counter& counter, int64_t now, int64_t before) {
    counter.Increment(static_cast<double>(now - before));
  };
  const TierCounts& counts = record.counts;
  raise(visits_, counts.visits, last_.visits);
  raise(hops_, counts.hops, last_.hops);
  raise(doubted_, counts.doubted, last_.doubted);
  raise(hop_bytes_out_, counts.bytes_to_host, last_.bytes_to_host);
  raise(hop_bytes_back_, counts.bytes_from_host, last_.bytes_from_host);
  raise(offloaded_bytes_, counts.offloaded_bytes, last_.offloaded_bytes);
  raise(onloaded_bytes_, counts.onloaded_bytes, last_.onloaded_bytes);
  raise(attended_bytes_, counts.attended_bytes, last_.attended_bytes);
  attention_seconds_.Increment(to_seconds(counts.attention_time - last_.attention_time));
  hops_in_flight_.Set(static_cast<double>(counts.hops_in_flight));
  workers_lost_.Set(static_cast<double>(counts.workers_lost));
  last_ = counts;
  if (meter_.add_tiers(record, clock_.now())) {
    show_regime();
  }
}

void TierMetrics::add(const StepRecord& record) {
  meter_.add_step(record, offloaded_now_);
  prefix_blocks_fetched_.Increment(static_cast<double>(record.prefix_blocks_fetched));
  mode_changes_.Increment(record.mode_changed ? 1 : 0);
  lane_moves_.Increment(record.lane_moves);
  let_in_.Increment(record.let_in);
  straight_to_host_.Increment(record.straight_to_host);
}

void TierMetrics::show_regime() {
  const std::optional<RegimeLimits> limits = meter_.limits();
  for (size_t i = 0; i < kRegimeNames.size(); ++i) {
    prometheus::Labels named = labels_;
    named.emplace("by", kRegimeNames[i]);
    prometheus::Gauge& limit = limits_.Add(named);
    const double tokens = limits.has_value() ? limits->tokens_per_second[i] : 0;
    limit.Set(std::isfinite(tokens) ? tokens : 0);
    prometheus::Labels regime = labels_;
    regime.emplace("regime", kRegimeNames[i]);
    const bool holds = limits.has_value() && limits->lowest() == static_cast<Regime>(i);
    regimes_.Add(regime).Set(holds ? 1 : 0);
  }
}

void TierMetrics::set(const PaceRecord& record) {
  for (const auto& [name, value] :
       {std::pair("all", record.ops), std::pair("late", record.overruns)}) {
    prometheus::Labels named = labels_;
    named.emplace("ended", name);
    pace_.Add(named).Set(static_cast<double>(value));
  }
}

}  // namespace tandem::observe
