// One step after another, launched group by group: each group is a few consecutive stages, whose
// visitors are chosen just before it is launched, so that results of hops which come back during
// the step can still join it. Only rows whose results are known to be on the device are named, so
// the compute stream never waits for anything but itself. Without a host tier a step is one group.
//
// In a step with lanes a group is one stage of one lane, the lanes take turns, and it is the launch
// that may wait for visitors: the compute stream has the other lane's stage meanwhile (NEO 3.1).
//
// In a step with prompts that go straight to the host a group is one stage too. The launch of a
// stage waits until the staging layer that it writes to is free, and the step ends when the last
// layer is on the host.
//
// Engine thread; nothing blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "device/device.h"
#include "exec/batch_layout.h"
#include "exec/completion_notifier.h"
#include "exec/forward/stages.h"
#include "exec/group_queue.h"
#include "exec/history_blocks.h"
#include "exec/host_tier/hop_carrier.h"
#include "exec/host_tier/hop_queues.h"
#include "exec/host_tier/offloaded_tokens.h"
#include "exec/host_tier/staging_layers.h"
#include "exec/step_sampling.h"
#include "exec/step_staging.h"
#include "exec/workspaces.h"
#include "plan/decisions.h"

namespace tandem {

class StepRun {
 public:
  // Where visitors come from and go to.
  struct HostParts {
    HopQueues& hops;
    HopCarrier& carrier;
    const OffloadedTokens& tokens;
    CompletionNotifier& notifier;
    const Clock& clock;
    Binder& binder;
    StagingLayers* staging = nullptr;  // null: no prompt goes straight to the host
    int32_t group_stages = 1;
    observe::Track* binds = nullptr;  // null: no spans are recorded
  };
  struct Parts {
    device::Device& device;
    device::StreamId stream;
    const Stages& stages;
    StepSampling& sampling;
    std::optional<HostParts> host = {};  // absent: one tier
  };
  StepRun(const Parts& parts, const ExecutorLimits& limits, int32_t last_stage);

  Status allocate(const HostTierSizes& sizes);

  // The residents' input is on its way to the device. Launches what may be launched at once.
  void begin(int64_t step, StepMode mode, const StepInputs& inputs);
  // Takes completed groups and launches the next ones, whose visitors the hop core knows: with a
  // host tier, pump it before. True: the step has completed.
  bool advance();
  // A step of visitors alone launches nothing more, and ends when what it has launched does.
  void wait_no_longer();
  // Takes completed groups, also after the step that they belong to: what they have consumed is
  // free then. Two tiers only.
  void take_groups();
  // Of the step that has completed: what StepResult counts.
  void count_visits(StepResult& result) const;
  // The last event recorded on the stream, if any.
  [[nodiscard]] const std::optional<device::EventId>& last_event() const { return last_event_; }

 private:
  enum class Next : uint8_t { kLaunch, kWait, kEnd };
  enum class Bound : uint8_t { kSome, kNobody, kNotYet };
  // The stages that are bound together, and of which lane.
  struct Scope {
    int32_t end_stage = 0;  // from next_stage_ on
    int32_t lane = HopQueues::kAllLanes;
  };

  void launch_all();
  void launch_more();
  void launch_groups();
  Next choose_stage();
  void launch_lanes();
  void next_lane();
  [[nodiscard]] bool lane_is_empty() const;
  [[nodiscard]] bool lane_has_residents() const { return next_lane_ == 0 && inputs_.rows > 0; }
  Bound bind_group(const Scope& scope);
  [[nodiscard]] Nanos poll_interval() const;
  BindView view_of(const Scope& scope);
  void show_bind(Nanos began) const;
  void count_second_lane();
  [[nodiscard]] bool stages_prompts() const { return inputs_.staged.shape.rows > 0; }
  [[nodiscard]] bool may_write_stage() const;
  [[nodiscard]] bool is_complete();
  void begin_hold(Nanos now);
  void end_hold();
  void lay_out_group();
  std::span<const BlockId> history_table(const SampleSpec& spec);
  void lay_out_samples(std::span<const piggyback::Visit> visits);
  void launch_group(int32_t end_stage);
  void send_visitors();
  void launch_last_stage(const TailRows& tail);
  void end();
  [[nodiscard]] bool attends(int32_t layer) const;

  const Parts parts_;
  const ExecutorLimits limits_;
  const int32_t last_stage_;
  HistoryBlocks histories_;  // of visitors, whose KV is on the host
  StepStaging staging_;
  StepStaging sample_staging_;

  bool running_ = false;
  bool launched_all_ = false;
  int64_t step_ = 0;
  StepMode mode_ = StepMode::kGroups;
  StepInputs inputs_;
  ResidentOps resident_ops_;
  int32_t next_stage_ = 0;
  int32_t next_lane_ = 0;         // with lanes
  int32_t sampled_visitors_ = 0;  // with lanes, of those before
  std::optional<Nanos> held_since_;
  std::optional<Nanos> idle_since_;  // held, and nothing is queued
  Nanos held_{0};                    // in the step, with nothing queued
  SecondLane second_;
  int64_t visits_in_step_ = 0;
  int64_t ready_in_step_ = 0;  // over its binds
  int64_t ticket_ = 0;         // the last group's
  int64_t first_ticket_ = 0;   // the ticket of the step's first group
  GroupQueue groups_;
  std::optional<device::EventId> last_event_;

  // Of the group being bound.
  std::vector<int32_t> ready_;
  std::vector<int32_t> coming_;
  std::vector<int32_t> credits_;
  BindDecision decision_;
  std::vector<piggyback::Visit> visits_;
  std::vector<size_t> stage_ends_;  // by stage of the group: its visits end here
  std::vector<TailRows> tails_;
  std::vector<device::EventId> routed_;  // by stage with visitors that go on to the host
  const kernels::SampleRow* visitor_samples_ = nullptr;
  std::vector<BlockId> history_table_;
};

}  // namespace tandem
