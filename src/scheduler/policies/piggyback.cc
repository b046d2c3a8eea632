#include "scheduler/policies/piggyback.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"
#include "scheduler/classed_planner.h"
#include "scheduler/fill_binder.h"
#include "scheduler/join_binders.h"

namespace tandem {

constinit const PolicyOption kPiggybackTokenBudget{
    .name = "piggyback-token-budget",
    .unit = "tokens",
    .default_value = 512,
    .min = 1,
    .max = std::numeric_limits<int32_t>::max(),
    .help = "tokens of a step; under omniserve while no target limits it"};
constinit const PolicyOption kOffloadBelow{
    .name = "offload-below",
    .unit = "percent",
    .default_value = 25,
    .min = 0,
    .max = 100,
    .help =
        "best-effort decodes move to the host while fewer percent of the KV blocks are free; "
        "100: always"};
constinit const PolicyOption kOnloadAbove{
    .name = "onload-above",
    .unit = "percent",
    .default_value = 50,
    .min = 0,
    .max = 100,
    .help =
        "an offloaded decode moves back if that leaves at least this percentage of the KV "
        "blocks free; 100: never"};

namespace {

constexpr std::array<const PolicyOption*, 3> kOptions = {&kPiggybackTokenBudget, &kOffloadBelow,
                                                         &kOnloadAbove};
constexpr PolicyTraits kTraits{.tiers = PolicyTiers::kBoth, .reads = {.targets = false}};

template <class JoinBinder>
std::unique_ptr<Binder> make_join_binder() {
  return std::make_unique<JoinBinder>();
}

template <JoinRule kJoin, class JoinBinder>
Result<PolicyParts> make(const PolicyOptions& options, const Beliefs& /*beliefs*/) {
  ASSIGN_OR_RETURN(const PiggybackOptions values, piggyback_options(options));
  return PolicyParts{.step = std::make_unique<PiggybackPolicy>(values, kJoin),
                     .make_binder = make_join_binder<JoinBinder>,
                     .admission = nullptr};
}

constexpr ServiceClass kLs = ServiceClass::kLatencySensitive;
constexpr ServiceClass kBe = ServiceClass::kBestEffort;

// A part of a step's rows is kept for visitors where there are any, so that prompts and best-effort
// decodes do not shut them out.
constexpr int32_t kVisitorShareOfTokens = 4;
constexpr int32_t kVisitorShareOfLogits = 8;

// New best-effort prompts leave at least this share of the blocks free, in percent, where anything
// else runs: what arrives next should not have to send somebody away first.
constexpr int32_t kAdmissionMargin = 10;

// One planning.
class Planning {
 public:
  Planning(const SystemView& view, const PiggybackOptions& options)
      : view_(view), options_(options), planner_(view), step_tokens_(view.budget.tokens) {
    const auto parked = static_cast<int32_t>(view.offloaded.size());
    visitor_tokens_ = std::min(parked, view.budget.tokens / kVisitorShareOfTokens);
    visitor_logits_ = std::min(parked, std::max(1, view.budget.logit_rows / kVisitorShareOfLogits));
  }

  StepPlan plan() {
    decode(kLs);
    planner_.bring_back(kLs, 0, kNoLimit);
    prefill(kLs);
    admit(kLs);
    make_room_for_best_effort();
    decode(kBe);
    prefill(kBe);
    admit(kBe);
    if (!planner_.refused() && !planner_.builder().preempts() && options_.onload_above < 100) {
      planner_.bring_back(
          kBe, planner_.share_of_blocks(options_.onload_above) + planner_.reserved_blocks(),
          kNoLimit);
    }
    planner_.write_through_best_effort(planner_.share_of_blocks(options_.offload_below));
    return planner_.finish();
  }

 private:
  static constexpr int32_t kNoLimit = std::numeric_limits<int32_t>::max();

  [[nodiscard]] int32_t prompt_room() const {
    const int32_t left = planner_.builder().tokens_left();
    return std::min(options_.token_budget - (step_tokens_ - left), left - visitor_tokens_);
  }

  void decode(ServiceClass service_class) {
    for (size_t i = 0; i < view_.running.size(); ++i) {
      if (!planner_.may_decode(i, service_class)) {
        continue;
      }
      if (service_class == kBe && planner_.builder().logit_rows_left() <= visitor_logits_) {
        return;
      }
      planner_.add(i, 1);
    }
  }

  void prefill(ServiceClass service_class) {
    for (size_t i = 0; i < view_.running.size(); ++i) {
      const int32_t tokens = std::min(view_.running[i].pending_tokens(), prompt_room());
      if (planner_.may_prefill(i, service_class) && tokens > 0) {
        planner_.add(i, tokens);
      }
    }
  }

  void admit(ServiceClass service_class) {
    for (const SequenceView& sequence : view_.waiting) {
      if (sequence.service_class != service_class) {
        continue;
      }
      if (!admit_one(sequence)) {
        planner_.note_refused();
        return;  // no skipping ahead: that would starve the long ones
      }
    }
  }

  [[nodiscard]] int64_t kept_beside_best_effort() const {
    return planner_.share_of_blocks(std::min(options_.offload_below, kAdmissionMargin)) +
           planner_.reserved_blocks();
  }

  bool admit_one(const SequenceView& sequence) {
    const bool best_effort = sequence.service_class == kBe;
    if (best_effort && !view_.running.empty() &&
        planner_.builder().blocks_left() - planner_.blocks_to_begin(sequence) <
            kept_beside_best_effort()) {
      return false;
    }
    return planner_.admit(sequence, std::min(sequence.pending_tokens(), prompt_room()));
  }

  // Where few blocks are free, or too few for the prompt that comes next: its answer rides along
  // on the host rather than its beginning waiting for others' ends.
  void make_room_for_best_effort() {
    int64_t wanted = planner_.share_of_blocks(options_.offload_below) + planner_.reserved_blocks();
    const auto next = std::ranges::find(view_.waiting, kBe, &SequenceView::service_class);
    if (next != view_.waiting.end() && !planner_.refused() &&
        next->choices <= view_.budget.sequences) {
      wanted = std::max(wanted, planner_.blocks_to_begin(*next) + kept_beside_best_effort());
    }
    planner_.offload_best_effort(wanted - planner_.builder().blocks_left(),
                                 ClassedPlanner::Need::kWish);
  }

  const SystemView& view_;
  const PiggybackOptions& options_;
  ClassedPlanner planner_;
  int32_t step_tokens_;
  int32_t visitor_tokens_ = 0;
  int32_t visitor_logits_ = 0;
};

// Residents in the first lane and offloaded tokens in the second; without residents the offloaded
// ones are dealt out to both, so that the host attends for one lane while the accelerator computes
// the other.
void make_lanes(const SystemView& view, StepPlan& plan) {
  bool second = false;
  for (const SequenceView& sequence : view.offloaded) {
    if (sequence.tier != Tier::kHost || sequence.state == SequenceState::kOnloading) {
      continue;
    }
    plan.mode = StepMode::kLanes;
    if (plan.slices.empty() && !second) {
      plan.first_lane.push_back(sequence.id);
    }
    second = !second;
  }
}

}  // namespace

constinit const PolicyDescriptor kPiggyback{
    .name = "piggyback",
    .summary = "as sarathi; best effort decodes on the host where memory is short",
    .traits = kTraits,
    .options = kOptions,
    .make = make<JoinRule::kReady, FillBinder>};
constinit const PolicyDescriptor kOverlap{
    .name = "overlap",
    .summary = "as piggyback; offloaded tokens at the same stage join a step together",
    .traits = kTraits,
    .options = kOptions,
    .make = make<JoinRule::kCohort, CohortBinder>};
constinit const PolicyDescriptor kLanes{
    .name = "lanes",
    .summary = "as piggyback; steps have two lanes, which wait for their offloaded tokens",
    .traits = kTraits,
    .options = kOptions,
    .make = make<JoinRule::kWait, WaitBinder>};

Result<PiggybackOptions> piggyback_options(const PolicyOptions& options) {
  const PiggybackOptions values{.token_budget = options[kPiggybackTokenBudget],
                                .offload_below = options[kOffloadBelow],
                                .onload_above = options[kOnloadAbove]};
  if (values.offload_below > values.onload_above) {
    return invalid_argument(fmt::format("--offload-below {} must not be above --onload-above {}",
                                        values.offload_below, values.onload_above),
                            "offload-below");
  }
  return values;
}

PiggybackPolicy::PiggybackPolicy(const PiggybackOptions& options, JoinRule join)
    : options_(options), join_(join) {
  CHECK(options.token_budget > 0 && options.offload_below >= 0 &&
            options.offload_below <= options.onload_above && options.onload_above <= 100,
        "a token budget of {}, offload below {} %, onload above {} %", options.token_budget,
        options.offload_below, options.onload_above);
}

std::string_view PiggybackPolicy::name() const {
  switch (join_) {
    case JoinRule::kReady:
      return kPiggyback.name;
    case JoinRule::kCohort:
      return kOverlap.name;
    case JoinRule::kWait:
      return kLanes.name;
  }
  CHECK(false, "join rule {}", static_cast<int>(join_));
  return "";
}

StepPlan PiggybackPolicy::plan(const SystemView& view) {
  StepPlan plan = Planning(view, options_).plan();
  if (join_ == JoinRule::kWait) {
    make_lanes(view, plan);
  }
  return plan;
}

}  // namespace tandem
