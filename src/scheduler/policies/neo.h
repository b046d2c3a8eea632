// NEO's load-aware scheduler (NEO 3.2) over two asymmetric lanes (NEO 3.1). As published it knows
// no classes and no targets. Each step:
//
//   1  all decodes of the accelerator
//   2  while they need more blocks than there are, the last sequences leave for the front of the
//      host's queue; else sequences come back from its front while at most 95 % of the blocks are
//      in use; one direction a step
//   3  prompts first come, first served, whole, while rows last and the host's blocks suffice for
//      all that has to go there (see below); a prompt without room on the accelerator is bound for
//      the host, and so are all later ones of the step
//   4  decodes of the host by lane_placement.h: a token joins if the host's attention hides behind
//      the accelerator's work, else its sequence waits
//   5  prompts bound for the host leave the step from its tail while the first lane keeps 128 rows
//      and the host's attention stays hidden
//   6  with lanes or without, whichever gives more requests per predicted time
//
// `neo`         as published, with its known faults where they cost speed alone: sequences on the
//               host starve beside ones that fit their lanes better, and prompts are begun without
//               room for their output, so that sequences go back and forth
// `neo_capped`  the same with steps cut to the TPOT targets of latency-sensitive requests, which is
//               OmniServe's baseline B (OmniServe 5.1.3): prompts are computed in chunks, and
//               tokens of the host join, as far as the step stays within the smallest target
// `neo_plus`    repaired: classes as the other policies of two classes have them; chunks and capped
//               steps; the windows that steps here really give the host; sequences of the host in
//               the order of their targets, those first that were passed over for --patience-steps
//               steps; an overdue token that does not hide joins all the same within one percent of
//               the time; further tokens join for which a layer becomes up to 3 % longer, while the
//               step gives more tokens per time with them; no prompts for a host that would be late
//               beside such prompts; prompts leave the step only while the first lane also takes
//               ten times as long as one row; the host is there for want of blocks, not of places;
//               room for expected output is kept before a prompt stays on the accelerator; output
//               tokens count, not requests, against what the whole predicted step is worth to the
//               residents; lanes change with a hysteresis, and not where a first token would be
//               late
// `fastdecode`  NEO's FastDecode+ (NEO 5.1): all decodes on the host, in two lanes
//
// What differs from the paper and its authors' program:
//   - The program begins a prompt while what the host holds, and it, leave as many host blocks free
//     as the accelerator has in all. Where that never holds nothing would ever begin: where the
//     host has no more blocks than the accelerator, all of them count, and without any other
//     sequence a prompt begins in any case. A log line says so.
//   - Where only sequences on the host are left that are too large to return, the program stops.
//     Here they go on in both lanes, whatever the host takes, and a log line says so.
//   - A prompt longer than a step's rows is computed in chunks instead of never.
//   - A prompt bound for the host goes straight there, layer by layer, as in the program, if it is
//     computed whole, has no cached prefix and one choice, and the executor has staging layers.
//     Else its KV lies on the accelerator until it is copied behind the step that ends the prompt.
//     The room is made by the last sequences of the accelerator, which leave for the host.
//   - Copies run beside steps: a sequence that moves misses a step or two, the paper's none.
//   - Launch terms are measured (latency/host_times.h), not 0.8 ms.
//   - The paper prints the ratio of rule 6 upside down.
//
// Beside residents a step with lanes has tokens that are partly advanced in the second lane, which
// begins at the first stage i that has one and costs layers - i dense stages. Tokens of the first
// lane move there; `neo_plus` moves them if that gives more than waiting for them beside the
// residents. With NEO every token goes through all stages of one step, so none is partly advanced;
// here tokens are if a step had no rows for them, if the host did not answer in time, or if they
// began in a step without lanes.
//
// Guarantee: some sequence always advances. A sequence that --max-held-steps plans in a row have
// held gets a token, whatever the host takes for it; for each token they are counted anew.
// `neo_plus` also keeps the blocks of latency-sensitive sequences from best effort
// (classed_planner.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "plan/decisions.h"
#include "plan/fcfs_order.h"
#include "scheduler/host_queue.h"
#include "scheduler/host_waits.h"
#include "scheduler/lane_times.h"
#include "scheduler/lanes_inequality.h"
#include "scheduler/overlap_limiter.h"
#include "scheduler/patience.h"
#include "scheduler/policy.h"
#include "scheduler/seen_outputs.h"

namespace tandem {

extern const PolicyDescriptor kNeo;
extern const PolicyDescriptor kNeoCapped;
extern const PolicyDescriptor kNeoPlus;
extern const PolicyDescriptor kFastDecode;
extern const PolicyOption kNeoCodeTerms;
extern const PolicyOption kMaxHeldSteps;  // of all policies that hold tokens on the host

// How offloaded tokens join a step: in two lanes (rules 4 to 6), or by APEX's rules (apex.h).
enum class HostJoin : uint8_t { kByNeo, kByApex, kByApexPlus };

// An error unless the model of time knows the parts of a step. Needs step times.
Status needs_parts(const PolicyDescriptor& policy, const Beliefs& beliefs);

// How the offloaded tokens of a step join it.
enum class StepForm : uint8_t { kResident, kOverlapped, kTwoLanes };

struct NeoRules {
  LaneWindows windows = LaneWindows::kCode;
  bool all_on_host = false;                // fastdecode
  bool caps_steps = false;                 // neo_capped, neo_plus, apex_plus
  bool repaired = false;                   // neo_plus, apex_plus
  int32_t patience_steps = 1;              // neo_plus, apex_plus
  int32_t max_held_steps = kMaxHeldPlans;  // then a token begins although held
  HostJoin join = HostJoin::kByNeo;
  MixedWindow mixed_window = MixedWindow::kPrinted;  // apex
  int32_t min_host_rows = 0;  // apex: offloaded rows per resident row; 0: as many as pay
  // apex_plus: not kResident; tokens join so wherever they can. Absent: as pays best.
  std::optional<StepForm> only_form{};
};

// What a planning leaves to the next one.
struct NeoMemory {
  HostQueue queue;
  std::vector<SequenceId> host_bound;  // prompts that go to the host when they are done
  Patience patience{1};                // with decodes of the host; neo_plus
  SeenOutputs outputs;                 // neo_plus
  bool had_lanes = false;
  Nanos prompts_per_layer{0};  // time that prompts add to a layer, mean of some 32 steps; repaired
  Nanos for_overdue{0};  // that steps may be longer for overdue decodes of the host; repaired rules
  StepForm form = StepForm::kResident;  // of the last step; apex_plus
  OverlapLimiter limiter;               // apex_plus
  HostWaits::Memory host_waits;         // apex_plus
  // Departures from the published rules that a log line has told of.
  bool told_small_host = false;
  bool told_large_prompt = false;
  bool told_lone = false;
};

class NeoPolicy final : public StepPolicy {
 public:
  // What `beliefs` name must outlive it; the step times have parts. Without host times the host
  // counts as taking no time.
  NeoPolicy(const NeoRules& rules, const PolicyDescriptor& descriptor, const Beliefs& beliefs);
  [[nodiscard]] std::string_view name() const override { return descriptor_.name; }
  [[nodiscard]] std::unique_ptr<QueueOrder> make_queue_order() const override {
    return fcfs_order(rules_.repaired ? FcfsOrder::By::kClassFirst : FcfsOrder::By::kArrival);
  }
  [[nodiscard]] bool reads_stages() const override { return !rules_.all_on_host; }
  StepPlan plan(const SystemView& view) override;

 private:
  // `view` with its offloaded sequences in the order of the queue; as published without classes.
  [[nodiscard]] SystemView as_seen(const SystemView& view);

  const NeoRules rules_;
  const PolicyDescriptor& descriptor_;
  const LaneModel model_;
  const latency::HostTimes* const host_times_;
  NeoMemory memory_;
  std::vector<SequenceView> running_;  // reused
  std::vector<SequenceView> offloaded_;
  std::vector<SequenceView> waiting_;
};

}  // namespace tandem
