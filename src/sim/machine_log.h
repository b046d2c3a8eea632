// What a simulated machine does in the course of a run: steps by kind and by mode, how well they
// were predicted, what limited offloaded decoding, when each side worked, and slices of time with
// what was computed and what the memories held. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "observe/engine_observer.h"
#include "observe/regime.h"
#include "sim/busy_spans.h"

namespace tandem::sim {

struct MachineSlice {
  int64_t steps = 0;
  Nanos step_time{0};
  int64_t prompt_tokens = 0;
  int64_t decode_tokens = 0;  // of residents
  int64_t hops = 0;
  Nanos attention{0};  // that the host's server worked; the mean over several hosts
  // Sums of the state after each advance of the engine.
  int64_t looks = 0;
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t offloaded = 0;
  int64_t blocks = 0;
  int64_t host_blocks = 0;
  BusyTimes busy;

  void add(const MachineSlice& other);
};

// Steps of one kind: decode, mixed, prefill, or waiting (none but visitors, no prediction).
struct StepKind {
  int64_t steps = 0;
  Nanos time{0};
  int64_t prompt_tokens = 0;
  int64_t decode_tokens = 0;
  Nanos predicted{0};
  Nanos error{0};  // sum of |predicted - actual|
};

// Steps counted by a share of their time, in thousandths.
class StepShares {
 public:
  // Shares above 1 count as 1.
  void add(Nanos part, Nanos whole);
  [[nodiscard]] bool empty() const { return counts_.empty(); }
  // The part of the steps with at most this share; 0 if there are none.
  [[nodiscard]] double within(double share) const;
  // Half of the steps have at most this share; 0 if there are none.
  [[nodiscard]] double median() const;

 private:
  static constexpr size_t kParts = 1000;
  std::vector<int64_t> counts_;
};

struct StepsOfMode {
  int64_t steps = 0;
  Nanos time{0};
  StepShares errors;  // |predicted - actual| over the actual time; empty: no step was predicted
  StepShares idle;    // time in which the accelerator does nothing, over the step's time
};

// Steps before which a policy weighed lanes against none (LanesInequality). Sides beyond a million
// count as that.
struct WeighedSteps {
  int64_t steps = 0;
  int64_t held = 0;       // in which lanes paid
  double rate_ratio = 0;  // sums
  double bound = 0;
};

// What plans did with tokens on the host.
struct HostChanges {
  int64_t modes = 0;             // steps with lanes after one without, or the reverse
  int64_t lane_moves = 0;        // tokens under way that were put into a lane
  int64_t let_in = 0;            // tokens that began because the bound on holding was reached
  int64_t straight_to_host = 0;  // prompts whose KV went there layer by layer
};

struct PredictedStep {
  Nanos predicted{0};
  Nanos actual{0};
};

// The run's time by observe::Regime; the last one: while no offloaded token was computed.
using RegimeTimes = std::array<Nanos, observe::kRegimeNames.size() + 1>;

class MachineLog final : public observe::EngineObserver {
 public:
  static constexpr size_t kMostSlices = 480;
  static constexpr size_t kMaxPredictions = 2000;

  void on_step(const observe::StepRecord& record) override;
  void on_gauges(const observe::EngineGauges& gauges) override;
  void on_request(const observe::RequestRecord& /*record*/) override {}
  void on_tiers(const observe::TierRecord& record) override;

  // What comes counts from now on. Both must outlive the log, or its end(). `visiting`: the name of
  // the mode of steps that visitors join in groups, "piggyback" or "overlap".
  // `before`: what has gone on between the tiers until now.
  void begin(const Clock& clock, BusySides& sides, std::string_view visiting,
             const TierCounts& before = {});
  // Nothing more counts.
  void end();

  [[nodiscard]] int64_t steps() const { return steps_; }
  // The run's slices of time, from its beginning on; at most kMostSlices. All have slice_time(),
  // but the last may be longer or shorter.
  [[nodiscard]] const std::vector<MachineSlice>& slices() const { return slices_; }
  [[nodiscard]] Nanos slice_time() const { return slice_time_; }
  // The time of a slice. The last ends with the run, and has from 0.25 to 1.25 of the others' time.
  [[nodiscard]] double slice_seconds(size_t index) const;
  [[nodiscard]] const std::map<std::string, StepKind, std::less<>>& kinds() const { return kinds_; }
  // resident: without visitors; piggyback, overlap, lanes: residents and visitors; visitors: alone.
  [[nodiscard]] const std::map<std::string, StepsOfMode, std::less<>>& modes() const {
    return modes_;
  }
  // Every n-th predicted step, so that there are at most kMaxPredictions; by StepKind.
  [[nodiscard]] const std::map<std::string, std::vector<PredictedStep>, std::less<>>& predictions()
      const {
    return predictions_;
  }
  [[nodiscard]] const WeighedSteps& weighed() const { return weighed_; }
  [[nodiscard]] const HostChanges& changes() const { return changes_; }
  // All zero with one tier.
  [[nodiscard]] const RegimeTimes& regimes() const { return regimes_; }
  [[nodiscard]] const BusyTimes& busy() const { return busy_; }
  [[nodiscard]] Nanos duration() const { return duration_; }
  // Sequences whose KV was on the host.
  [[nodiscard]] double mean_offloaded() const;
  [[nodiscard]] int64_t max_offloaded() const { return max_offloaded_; }
  [[nodiscard]] int64_t blocks() const { return blocks_; }
  [[nodiscard]] int64_t host_blocks() const { return host_blocks_; }
  [[nodiscard]] int32_t layers() const { return tiers_.layers; }

 private:
  MachineSlice& slice_at(Nanos time);
  void join_short_rest();
  // `from`: when the step had the accelerator to itself.
  void count_mode(const observe::StepRecord& record, Nanos from);
  void keep_prediction(const observe::StepRecord& record, const std::string& kind);
  void settle_busy(Nanos until);
  void count_regime(Nanos now);

  const Clock* clock_ = nullptr;
  BusySides* sides_ = nullptr;
  std::string visiting_;
  Nanos began_{0};
  Nanos duration_{0};
  Nanos last_{0};  // when the last step ended
  Nanos slice_time_{std::chrono::seconds(1)};
  std::vector<MachineSlice> slices_;
  std::map<std::string, StepKind, std::less<>> kinds_;
  std::map<std::string, StepsOfMode, std::less<>> modes_;
  std::map<std::string, std::vector<PredictedStep>, std::less<>> predictions_;
  WeighedSteps weighed_;
  HostChanges changes_;
  int64_t predicted_steps_ = 0;
  int64_t prediction_stride_ = 1;
  observe::RegimeMeter meter_;
  RegimeTimes regimes_{};
  Nanos regime_until_{0};
  BusyTimes busy_;
  int64_t steps_ = 0;
  int64_t offloaded_ = 0;  // now
  int64_t max_offloaded_ = 0;
  Nanos gauged_{0};  // when offloaded_ was seen
  double offloaded_seconds_ = 0;
  int64_t blocks_ = 0;
  int64_t host_blocks_ = 0;
  TierCounts tiers_;
};

// A line per slice, with a header.
std::string machine_csv(const MachineLog& log);

}  // namespace tandem::sim
