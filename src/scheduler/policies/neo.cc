#include "scheduler/policies/neo.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <span>

#include "latency/step_time_model.h"
#include "scheduler/join_binders.h"
#include "scheduler/policies/neo_step.h"
#include "scheduler/policies/omniserve.h"

namespace tandem {

constinit const PolicyOption kNeoCodeTerms{
    .name = "neo-code-terms",
    .unit = "",
    .default_value = 1,
    .min = 0,
    .max = 1,
    .help =
        "1: the time in which the host must attend counts attention of prompts and launches, as "
        "NEO's program does; 0: as the paper prints it"};

constinit const PolicyOption kMaxHeldSteps{
    .name = "max-held-steps",
    .unit = "steps",
    .default_value = kMaxHeldPlans,
    .min = 1,
    .max = kMaxHeldPlans,
    .help =
        "a sequence on the host that this number of steps in a row has held gets its token in the "
        "next one, even if the host makes that step long"};

namespace {

constexpr std::array<const PolicyOption*, 2> kNeoOptions = {&kNeoCodeTerms, &kMaxHeldSteps};
constexpr std::array<const PolicyOption*, 2> kNeoPlusOptions = {&kPatienceSteps, &kMaxHeldSteps};

constexpr PolicyTraits traits_with(const ServiceFields& reads) {
  return {.needs_step_times = true,
          .needs_host_times = true,
          .stages_prompts = true,
          .tiers = PolicyTiers::kBoth,
          .reads = reads};
}
constexpr PolicyTraits kBlind =
    traits_with({.service_class = false, .level = false, .targets = false});

enum class Variant : uint8_t { kPublished, kCapped, kPlus, kFastDecode };

NeoRules rules_of(Variant variant, const PolicyOptions& options) {
  const LaneWindows published =
      options[kNeoCodeTerms] == 1 ? LaneWindows::kCode : LaneWindows::kPaper;
  return {.windows = variant == Variant::kPlus ? LaneWindows::kReal : published,
          .all_on_host = variant == Variant::kFastDecode,
          .caps_steps = variant == Variant::kCapped || variant == Variant::kPlus,
          .repaired = variant == Variant::kPlus,
          .patience_steps = options[kPatienceSteps],
          .max_held_steps = options[kMaxHeldSteps]};
}

template <const PolicyDescriptor& kDescriptor, Variant kVariant>
Result<PolicyParts> make_neo(const PolicyOptions& options, const Beliefs& beliefs) {
  RETURN_IF_ERROR(needs_parts(kDescriptor, beliefs));
  return PolicyParts{
      .step = std::make_unique<NeoPolicy>(rules_of(kVariant, options), kDescriptor, beliefs),
      .make_binder = []() -> std::unique_ptr<Binder> { return std::make_unique<WaitBinder>(); },
      .admission = nullptr};
}

void forget_classes(std::vector<SequenceView>& sequences) {
  for (SequenceView& sequence : sequences) {
    sequence.service_class = ServiceClass::kBestEffort;
    sequence.level = 0;
  }
}

// The smallest TPOT target of sequences that were admitted; where classes are known, of the
// latency-sensitive ones.
Nanos smallest_tpot(const SystemView& view, const NeoRules& rules) {
  Nanos smallest = Nanos::max();
  for (const std::span<const SequenceView> sequences : {view.running, view.offloaded}) {
    for (const SequenceView& sequence : sequences) {
      if (!rules.repaired || sequence.service_class == ServiceClass::kLatencySensitive) {
        smallest = std::min(smallest, sequence.tpot);
      }
    }
  }
  return smallest;
}

}  // namespace

constinit const PolicyDescriptor kNeo{
    .name = "neo",
    .summary =
        "NEO as published: each step has two lanes or none, whichever serves more requests "
        "in its predicted time",
    .traits = kBlind,
    .options = kNeoOptions,
    .make = make_neo<kNeo, Variant::kPublished>};
constinit const PolicyDescriptor kNeoCapped{
    .name = "neo_capped",
    .summary = "as neo, with steps within the TPOT targets",
    .traits = traits_with({.service_class = false, .level = false, .targets = true}),
    .options = kNeoOptions,
    .make = make_neo<kNeoCapped, Variant::kCapped>};
constinit const PolicyDescriptor kNeoPlus{
    .name = "neo_plus",
    .summary = "as neo, repaired: classes, chunks, targets, room for output, no starvation",
    .traits = traits_with({}),
    .options = kNeoPlusOptions,
    .make = make_neo<kNeoPlus, Variant::kPlus>};
constinit const PolicyDescriptor kFastDecode{
    .name = "fastdecode",
    .summary = "all decodes attend on the host, in two lanes (FastDecode+)",
    .traits = kBlind,
    .options = kNeoOptions,
    .make = make_neo<kFastDecode, Variant::kFastDecode>};

Status needs_parts(const PolicyDescriptor& policy, const Beliefs& beliefs) {
  if (beliefs.step_times->parts({}).has_value()) {
    return {};
  }
  return invalid_argument(
      fmt::format("{} plans by the parts of a step's time, and --time-model {} predicts whole "
                  "steps only; use --time-model modular",
                  policy.name, beliefs.step_times->name()),
      "time-model");
}

NeoPolicy::NeoPolicy(const NeoRules& rules, const PolicyDescriptor& descriptor,
                     const Beliefs& beliefs)
    : rules_(rules),
      descriptor_(descriptor),
      model_(*beliefs.step_times, beliefs.host_times, rules.windows),
      host_times_(beliefs.host_times) {
  memory_.patience = Patience(rules.patience_steps);
}

SystemView NeoPolicy::as_seen(const SystemView& view) {
  SystemView seen = view;
  memory_.queue.sort(view.offloaded, offloaded_);
  seen.offloaded = offloaded_;
  if (!rules_.repaired) {
    running_.assign(view.running.begin(), view.running.end());
    waiting_.assign(view.waiting.begin(), view.waiting.end());
    forget_classes(running_);
    forget_classes(waiting_);
    forget_classes(offloaded_);
    seen.running = running_;
    seen.waiting = waiting_;
  }
  return seen;
}

StepPlan NeoPolicy::plan(const SystemView& view) {
  if (rules_.join == HostJoin::kByApexPlus) {
    memory_.limiter.look(view);
  }
  const SystemView seen = as_seen(view);
  const Nanos limit = rules_.caps_steps ? smallest_tpot(view, rules_) : Nanos::max();
  StepPlan plan = NeoStep(rules_, {model_, host_times_}, seen, limit, memory_).plan();
  std::vector<SequenceId> leave;
  std::ranges::copy_if(plan.offload, std::back_inserter(leave), [&](SequenceId id) {
    return std::ranges::find(memory_.host_bound, id) == memory_.host_bound.end();
  });
  memory_.queue.push_front(leave);
  return plan;
}

}  // namespace tandem
