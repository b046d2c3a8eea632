#include "scheduler/policies/apex.h"

#include <array>
#include <memory>
#include <optional>

#include "scheduler/join_binders.h"
#include "scheduler/policies/neo.h"
#include "scheduler/policies/omniserve.h"

namespace tandem {

constinit const PolicyOption kApexHostRows{
    .name = "apex-host-rows",
    .unit = "offloaded sequences",
    .default_value = 0,
    .min = 0,
    .max = 1000,
    .help =
        "the host begins with tokens when it has so many sequences for each request of the step "
        "(the paper: 8); 0: when predicted times say that it pays"};
constinit const PolicyOption kApexRealWindow{
    .name = "apex-real-window",
    .unit = "",
    .default_value = 0,
    .min = 0,
    .max = 1,
    .help =
        "1: in steps with prompts both sides of the inequality count the time that their step "
        "really takes; 0: as the paper prints it, without the prompts' part"};
constinit const PolicyOption kApexPlusForm{
    .name = "apex-plus-form",
    .unit = "",
    .default_value = 0,
    .min = 0,
    .max = 2,
    .help =
        "how offloaded tokens join: 0: as pays best by the predicted times, step by step; 1: by "
        "overlap only; 2: in two lanes wherever any fits, else by overlap; 1 and 2 are for "
        "comparison"};

namespace {

constexpr std::array<const PolicyOption*, 3> kApexOptions = {&kApexHostRows, &kApexRealWindow,
                                                             &kMaxHeldSteps};
constexpr std::array<const PolicyOption*, 3> kApexPlusOptions = {&kPatienceSteps, &kMaxHeldSteps,
                                                                 &kApexPlusForm};

NeoRules apex_rules(const PolicyOptions& options) {
  return {
      .windows = LaneWindows::kPaper,
      .max_held_steps = options[kMaxHeldSteps],
      .join = HostJoin::kByApex,
      .mixed_window = options[kApexRealWindow] == 1 ? MixedWindow::kReal : MixedWindow::kPrinted,
      .min_host_rows = options[kApexHostRows]};
}

std::optional<StepForm> form_of(int32_t option) {
  if (option == 0) {
    return std::nullopt;
  }
  return option == 1 ? StepForm::kOverlapped : StepForm::kTwoLanes;
}

NeoRules apex_plus_rules(const PolicyOptions& options) {
  return {.windows = LaneWindows::kReal,
          .caps_steps = true,
          .repaired = true,
          .patience_steps = options[kPatienceSteps],
          .max_held_steps = options[kMaxHeldSteps],
          .join = HostJoin::kByApexPlus,
          .mixed_window = MixedWindow::kReal,
          .only_form = form_of(options[kApexPlusForm])};
}

template <const PolicyDescriptor& kDescriptor, NeoRules (*kRules)(const PolicyOptions&),
          class JoinBinder>
Result<PolicyParts> make_apex(const PolicyOptions& options, const Beliefs& beliefs) {
  RETURN_IF_ERROR(needs_parts(kDescriptor, beliefs));
  return PolicyParts{
      .step = std::make_unique<NeoPolicy>(kRules(options), kDescriptor, beliefs),
      .make_binder = []() -> std::unique_ptr<Binder> { return std::make_unique<JoinBinder>(); },
      .admission = nullptr};
}

}  // namespace

constinit const PolicyDescriptor kApex{
    .name = "apex",
    .summary =
        "APEX as published: the accelerator first; tokens of the host join in two lanes or by "
        "overlap",
    .traits = {.needs_step_times = true,
               .needs_host_times = true,
               .stages_prompts = true,
               .tiers = PolicyTiers::kBoth,
               .cohorts = true,
               .reads = {.service_class = false, .level = false, .targets = false}},
    .options = kApexOptions,
    .make = make_apex<kApex, apex_rules, LanesOrCohortBinder>};
constinit const PolicyDescriptor kApexPlus{
    .name = "apex_plus",
    .summary = "as apex, repaired: classes, chunks, targets, several cohorts, no starvation",
    .traits = {.needs_step_times = true,
               .needs_host_times = true,
               .stages_prompts = true,
               .tiers = PolicyTiers::kBoth,
               .cohorts = true},
    .options = kApexPlusOptions,
    .make = make_apex<kApexPlus, apex_plus_rules, WaitBinder>};

}  // namespace tandem
