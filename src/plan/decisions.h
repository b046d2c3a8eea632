// The decisions that policies take, each view -> decision with plain data. Implementations are
// leaves in scheduler/policies. Engine thread only; a decision may keep state between calls but no
// pointer into a view.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "plan/queue_order.h"
#include "plan/views.h"

namespace tandem {

// So many plans in a row may hold a sequence.
inline constexpr int32_t kMaxHeldPlans = 1024;

// The two sides of the comparison that says whether lanes pay (APEX 3.2, inequality (6)).
struct LanesInequality {
  double rate_ratio = 0;  // left: the accelerator's rate of attention over the host's
  double bound = 0;       // right: lanes pay if the ratio is below; infinite: in any case
  [[nodiscard]] bool holds() const { return rate_ratio < bound; }
};

// What one step will do.
struct StepPlan {
  // How its visitors are taken along; only with a host tier.
  StepMode mode = StepMode::kGroups;
  struct Slice {
    SequenceId sequence{};
    int32_t tokens = 0;  // the next ones of the sequence
  };
  std::vector<SequenceId>
      preempt;  // running or parked ones whose KV is dropped before anything else; recomputed later
  std::vector<SequenceId>
      admit;  // waiting ones that become running, in this order; each has a slice
  std::vector<Slice> slices;
  // Of `admit`, those without a cached prefix and with one choice whose KV goes straight to the
  // host: the slice has all of their tokens, their KV takes host blocks and places in the staging
  // layers, and no blocks of the accelerator. After the step they decode on the host.
  std::vector<SequenceId> straight_to_host;
  // Running ones without a slice here whose KV moves to the host beside this and later steps. Their
  // blocks on the accelerator are free when the copy is done, not before.
  std::vector<SequenceId> offload;
  // Offloaded ones between two tokens whose KV moves back; they run when the copy is done.
  std::vector<SequenceId> onload;
  // Running ones that go on, and whose full blocks are copied to the host beside this and later
  // steps, so that an offload will find most of them there. Best effort: where the host has no
  // room, or they are there, nothing happens.
  std::vector<SequenceId> write_through;
  // kLanes: offloaded ones whose next token goes in the first lane, that of the residents; all
  // others go in the second.
  std::vector<SequenceId> first_lane;
  // kGroups: offloaded ones whose next token enters in the second lane, where a later step with
  // lanes will find it; all others enter in the first.
  std::vector<SequenceId> second_lane;
  // Offloaded sequences with a token under way that is in this lane from this step on. Each is
  // named at most once, and is neither dropped nor moved to the accelerator.
  std::vector<LaneMove> lane_moves;
  // Offloaded sequences whose next token does not enter in this step: they wait on the host without
  // compute. All other offloaded sequences between two tokens go on by themselves, and so does a
  // sequence that kMaxHeldPlans plans in a row have held.
  std::vector<SequenceId> hold;
  // Offloaded sequences whose token begins because the bound on holding was reached; for counts.
  std::vector<SequenceId> let_in;
  Nanos step_budget{0};                       // of time, that the policy kept to; 0: it has none
  std::optional<LanesInequality> inequality;  // if the policy weighed it; for records and results
};

class StepPolicy {
 public:
  virtual ~StepPolicy() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  // The order in which sequences are to wait; asked for once, when an engine is made.
  [[nodiscard]] virtual std::unique_ptr<QueueOrder> make_queue_order() const = 0;
  // Whether SequenceView::stage is to be shown, which costs some 0.05 us a sequence; asked once,
  // when an engine is made.
  [[nodiscard]] virtual bool reads_stages() const { return false; }
  virtual StepPlan plan(const SystemView& view) = 0;
};

// A group of stages of this step that is launched and not known to be complete.
struct LaunchedGroup {
  int32_t first_stage = 0;
  int32_t end_stage = 0;  // exclusive
};

// What is known just before a group of consecutive stages is launched. Stage s of a step is what
// the accelerator computes between the attention of layer s - 1 and that of layer s; the last one,
// the number of layers, ends with the logits.
struct BindView {
  Nanos now{0};
  int64_t step = 0;
  StepMode mode = StepMode::kGroups;  // kLanes: the view is of one stage of one lane
  int32_t lane = 0;                   // kLanes: that one
  Nanos held{0};                      // since this question was first asked and put off
  int32_t first_stage = 0;            // of the group
  int32_t last_stage = 0;             // of the model
  int32_t resident_rows = 0;
  int32_t row_room = 0;            // activation rows beside them, at each stage
  int32_t logit_room = 0;          // logit rows left for visitors of the last stage
  std::span<const int32_t> ready;  // by stage of the group: visitors that could join now
  // By stage of the group: visitors whose hop to it is in flight. Without lanes, only hops that
  // began in an earlier step: others are hardly ever back so soon.
  std::span<const int32_t> coming;
  // By stage of the group: visitors whose hop could be routed. All hops of a group take from the
  // same rows, so what one stage takes the others lack; the last stage begins no hop.
  std::span<const int32_t> credits;
  // What the accelerator still computes before it begins this group, oldest first. The visitors of
  // these groups are those that the binder let join.
  std::span<const LaunchedGroup> launched;
  Nanos oldest_runs{0};  // how long it has computed the oldest of them
};

struct BindDecision {
  std::vector<int32_t> visitors;  // by stage of the group: at most so many join
  // kLanes: the stage is not launched yet; asked again when something has changed. The accelerator
  // goes on with what the other lane has queued.
  bool wait = false;
};

// Which offloaded tokens join a step, decided group by group while it runs. Called by the executor
// on the engine thread; must not block.
class Binder {
 public:
  virtual ~Binder() = default;
  // `decision` comes without visitors and not waiting; its memory is reused from call to call.
  virtual void bind(const BindView& view, BindDecision& decision) = 0;
};

}  // namespace tandem
