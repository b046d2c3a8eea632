#include "sim/machine_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <optional>

namespace tandem::sim {
namespace {

// Work is handed out before it begins, but an actor that is asked late may hand some out for a time
// that another one has passed already: never so much earlier.
constexpr Nanos kSettleLate = std::chrono::milliseconds(100);

}  // namespace

void MachineSlice::add(const MachineSlice& other) {
  steps += other.steps;
  step_time += other.step_time;
  prompt_tokens += other.prompt_tokens;
  decode_tokens += other.decode_tokens;
  hops += other.hops;
  attention += other.attention;
  looks += other.looks;
  running += other.running;
  waiting += other.waiting;
  offloaded += other.offloaded;
  blocks += other.blocks;
  host_blocks += other.host_blocks;
  busy.add(other.busy);
}

void StepShares::add(Nanos part, Nanos whole) {
  counts_.resize(kParts + 1);
  const double share =
      static_cast<double>(part.count()) / static_cast<double>(std::max<int64_t>(whole.count(), 1));
  const double thousandths = std::ceil(share * static_cast<double>(kParts));
  ++counts_[static_cast<size_t>(std::min(thousandths, static_cast<double>(kParts)))];
}

double StepShares::within(double share) const {
  const int64_t all = std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
  const auto end = std::min(static_cast<size_t>(std::llround(share * kParts)) + 1, counts_.size());
  const int64_t near =
      std::accumulate(counts_.begin(), counts_.begin() + static_cast<int64_t>(end), int64_t{0});
  return all > 0 ? static_cast<double>(near) / static_cast<double>(all) : 0;
}

double StepShares::median() const {
  const int64_t all = std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
  size_t share = 0;
  for (int64_t seen = 0; share < counts_.size(); ++share) {
    seen += counts_[share];
    if (2 * seen >= all) {
      break;
    }
  }
  return static_cast<double>(share) / kParts;
}

void MachineLog::begin(const Clock& clock, BusySides& sides, std::string_view visiting,
                       const TierCounts& before) {
  tiers_ = before;
  clock_ = &clock;
  sides_ = &sides;
  visiting_ = visiting;
  began_ = clock.now();
  last_ = began_;
  gauged_ = began_;
  regime_until_ = began_;
  sides.begin(began_);
}

void MachineLog::end() {
  if (clock_ == nullptr) {
    return;
  }
  const Nanos now = std::max(clock_->now(), last_);
  settle_busy(now);
  if (host_blocks_ > 0) {
    count_regime(now);
  }
  offloaded_seconds_ +=
      static_cast<double>(offloaded_) * to_seconds(std::max(now - gauged_, Nanos{0}));
  duration_ = now - began_;
  join_short_rest();
  clock_ = nullptr;
  sides_ = nullptr;
}

double MachineLog::mean_offloaded() const {
  return duration_ > Nanos{0} ? offloaded_seconds_ / to_seconds(duration_) : 0;
}

// A step counts in the slice of its end: its tokens over a rest of some milliseconds are no rate.
void MachineLog::join_short_rest() {
  if (slices_.size() < 2) {
    return;
  }
  const Nanos rest = duration_ - static_cast<int64_t>(slices_.size() - 1) * slice_time_;
  if (rest < slice_time_ / 4) {
    slices_[slices_.size() - 2].add(slices_.back());
    slices_.pop_back();
  }
}

double MachineLog::slice_seconds(size_t index) const {
  const Nanos begin = static_cast<int64_t>(index) * slice_time_;
  const bool last = index + 1 == slices_.size() && duration_ > begin;
  return to_seconds(last ? duration_ - begin : slice_time_);
}

MachineSlice& MachineLog::slice_at(Nanos time) {
  auto index = static_cast<size_t>(std::max(time - began_, Nanos{0}) / slice_time_);
  while (index >= kMostSlices) {
    for (size_t i = 0; i < slices_.size(); i += 2) {
      MachineSlice pair = slices_[i];
      if (i + 1 < slices_.size()) {
        pair.add(slices_[i + 1]);
      }
      slices_[i / 2] = pair;
    }
    slices_.resize((slices_.size() + 1) / 2);
    slice_time_ *= 2;
    index /= 2;
  }
  if (index >= slices_.size()) {
    slices_.resize(index + 1);
  }
  return slices_[index];
}

void MachineLog::on_step(const observe::StepRecord& record) {
  ++steps_;
  const Nanos from =
      std::max(record.started, last_);  // a step may be launched before the last ends
  last_ = record.started + record.duration;
  MachineSlice& slice = slice_at(last_);
  const int64_t resident_decodes =
      std::max(record.resident_rows - record.prefill_tokens, 0);  // some prompts are offloaded
  ++slice.steps;
  slice.step_time += record.duration;
  slice.prompt_tokens += record.prefill_tokens;
  slice.decode_tokens += resident_decodes;
  count_mode(record, from);
  meter_.add_step(record, offloaded_);
  const std::string name(record.resident_rows == 0 ? "waiting" : record.regime);
  StepKind& kind = kinds_[name];
  ++kind.steps;
  kind.time += record.duration;
  kind.prompt_tokens += record.prefill_tokens;
  kind.decode_tokens += resident_decodes;
  if (record.predicted > Nanos{0}) {
    kind.predicted += record.predicted;
    kind.error += std::chrono::abs(record.predicted - record.duration);
    keep_prediction(record, name);
  }
}

void MachineLog::count_mode(const observe::StepRecord& record, Nanos from) {
  std::string_view name = "resident";
  if (record.resident_rows == 0) {
    name = "visitors";
  } else if (record.visits > 0) {
    name = record.mode == StepMode::kLanes ? "lanes" : std::string_view(visiting_);
  }
  StepsOfMode& mode = modes_[std::string(name)];
  ++mode.steps;
  mode.time += record.duration;
  if (record.predicted > Nanos{0}) {
    mode.errors.add(std::chrono::abs(record.predicted - record.duration), record.duration);
  }
  if (sides_ != nullptr && last_ > from) {
    mode.idle.add(last_ - from - sides_->accelerator.within({from, last_}), last_ - from);
  }
  changes_.modes += record.mode_changed ? 1 : 0;
  changes_.lane_moves += record.lane_moves;
  changes_.let_in += record.let_in;
  changes_.straight_to_host += record.straight_to_host;
  if (record.inequality.has_value()) {
    constexpr double kLargest = 1e6;
    ++weighed_.steps;
    weighed_.held += record.inequality->holds() ? 1 : 0;
    weighed_.rate_ratio += std::min(record.inequality->rate_ratio, kLargest);
    weighed_.bound += std::min(record.inequality->bound, kLargest);
  }
}

void MachineLog::keep_prediction(const observe::StepRecord& record, const std::string& kind) {
  if (predicted_steps_++ % prediction_stride_ != 0) {
    return;
  }
  predictions_[kind].push_back({.predicted = record.predicted, .actual = record.duration});
  size_t kept = 0;
  for (const auto& [name, steps] : predictions_) {
    kept += steps.size();
  }
  if (kept < kMaxPredictions) {
    return;
  }
  prediction_stride_ *= 2;
  for (auto& [name, steps] : predictions_) {
    for (size_t i = 0; i < steps.size(); i += 2) {
      steps[i / 2] = steps[i];
    }
    steps.resize((steps.size() + 1) / 2);
  }
}

void MachineLog::settle_busy(Nanos until) {
  while (sides_->settled() < until) {
    const Nanos from = std::max(sides_->settled(), began_);
    const Nanos slice_end = began_ + ((from - began_) / slice_time_ + 1) * slice_time_;
    const BusyTimes times = sides_->settle(std::min(until, slice_end));
    if (times.accelerator > Nanos{0} || times.host > Nanos{0}) {
      busy_.add(times);
      slice_at(from).busy.add(times);
    }
  }
}

void MachineLog::on_gauges(const observe::EngineGauges& gauges) {
  if (clock_ != nullptr) {
    const Nanos now = clock_->now();
    offloaded_seconds_ +=
        static_cast<double>(offloaded_) * to_seconds(std::max(now - gauged_, Nanos{0}));
    gauged_ = std::max(now, gauged_);
    settle_busy(std::min(now - kSettleLate, last_));  // the next step's idle time is counted later
  }
  offloaded_ = gauges.offloaded;
  max_offloaded_ = std::max(max_offloaded_, offloaded_);
  MachineSlice& slice = slice_at(last_);
  ++slice.looks;
  slice.running += gauges.running;
  slice.waiting += gauges.waiting;
  slice.offloaded += gauges.offloaded;
  slice.blocks += gauges.blocks_in_use;
  slice.host_blocks += gauges.host_blocks_in_use;
  blocks_ = gauges.total_blocks;
  host_blocks_ = gauges.host_blocks;
}

// The time since the last look belongs to the lowest limit now. Where nobody looked for long the
// machine stood still, and nothing was the limit.
void MachineLog::count_regime(Nanos now) {
  const std::optional<observe::RegimeLimits> limits = meter_.limits();
  const size_t regime =
      limits.has_value() ? static_cast<size_t>(limits->lowest()) : regimes_.size() - 1;
  const Nanos passed = std::max(now - regime_until_, Nanos{0});
  constexpr Nanos kLongStep = std::chrono::seconds(2);
  const Nanos counted = std::min(passed, kLongStep);
  regimes_[regime] += counted;
  regimes_.back() += passed - counted;
  regime_until_ = std::max(now, regime_until_);
}

void MachineLog::on_tiers(const observe::TierRecord& record) {
  MachineSlice& slice = slice_at(last_);
  slice.hops += record.counts.hops - tiers_.hops;
  slice.attention += record.counts.attention_time - tiers_.attention_time;
  tiers_ = record.counts;
  if (clock_ != nullptr && meter_.add_tiers(record, clock_->now())) {
    count_regime(clock_->now());
  }
}

std::string machine_csv(const MachineLog& log) {
  std::string text =
      "begin_s,steps,mean_step_ms,prompt_tokens_per_s,resident_decode_tokens_per_s,hops_per_s,"
      "host_attention_s_per_s,running,waiting,offloaded,kv_share,host_kv_share,accelerator_busy,"
      "host_busy,both_busy\n";
  const double slice_seconds = to_seconds(log.slice_time());
  const auto share = [](double part, int64_t whole) {
    return whole > 0 ? part / static_cast<double>(whole) : 0.0;
  };
  for (size_t i = 0; i < log.slices().size(); ++i) {
    const MachineSlice& slice = log.slices()[i];
    const double seconds = log.slice_seconds(i);
    const auto mean = [&slice](int64_t sum) {
      return static_cast<double>(sum) / static_cast<double>(std::max<int64_t>(slice.looks, 1));
    };
    fmt::format_to(
        std::back_inserter(text),
        "{:g},{},{:.3f},{:.1f},{:.1f},{:.1f},{:.4f},{:.1f},{:.1f},{:.1f},{:.4f},{:.4f},{:.4f},{:."
        "4f},{:.4f}\n",
        static_cast<double>(i) * slice_seconds, slice.steps,
        to_millis(slice.step_time) / static_cast<double>(std::max<int64_t>(slice.steps, 1)),
        static_cast<double>(slice.prompt_tokens) / seconds,
        static_cast<double>(slice.decode_tokens) / seconds,
        static_cast<double>(slice.hops) / seconds, to_seconds(slice.attention) / seconds,
        mean(slice.running), mean(slice.waiting), mean(slice.offloaded),
        share(mean(slice.blocks), log.blocks()), share(mean(slice.host_blocks), log.host_blocks()),
        to_seconds(slice.busy.accelerator) / seconds, to_seconds(slice.busy.host) / seconds,
        to_seconds(slice.busy.both) / seconds);
  }
  return text;
}

}  // namespace tandem::sim
