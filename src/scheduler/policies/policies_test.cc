#include <gtest/gtest.h>

#include "latency/modular_model.h"
#include "scheduler/policies/accel_only.h"
#include "scheduler/policies/llumnix.h"
#include "scheduler/policies/omniserve.h"
#include "scheduler/policies/piggyback.h"
#include "scheduler/policies/registry.h"
#include "scheduler/policies/sarathi.h"

namespace tandem {
namespace {

SequenceView decode(int64_t id, int32_t known, int32_t held) {
  return {.id = SequenceId{id},
          .state = SequenceState::kDecoding,
          .known_tokens = known,
          .computed_tokens = known - 1,
          .held_blocks = held,
          .own_blocks = held};
}

SequenceView prefill(int64_t id, int32_t known, int32_t computed, int32_t held) {
  return {.id = SequenceId{id},
          .state = SequenceState::kPrefilling,
          .known_tokens = known,
          .computed_tokens = computed,
          .held_blocks = held,
          .own_blocks = held};
}

SequenceView queued(int64_t id, int32_t known) {
  return {.id = SequenceId{id}, .known_tokens = known};
}

constexpr StepBudget kRoomy{
    .tokens = 100, .logit_rows = 16, .sequences = 16, .free_blocks = 100, .block_tokens = 16};

const latency::CorrectedModel& step_times() {
  static const latency::CorrectedModel model(
      std::make_unique<latency::ModularModel>(latency::simple_model(
          {.layers = 2, .fixed = std::chrono::milliseconds(1), .per_row = Nanos{10'000}})));
  return model;
}

int32_t tokens_of(const StepPlan& plan, int64_t id) {
  for (const StepPlan::Slice& slice : plan.slices) {
    if (slice.sequence == SequenceId{id}) {
      return slice.tokens;
    }
  }
  return 0;
}

TEST(AccelOnly, AnOldPromptTakesItsTokensBeforeNewerDecodes) {
  const std::vector<SequenceView> running{prefill(1, 500, 0, 0), decode(2, 20, 2)};
  SystemView view{.running = running, .waiting = {}, .budget = kRoomy};
  AccelOnlyPolicy policy;
  const StepPlan plan = policy.plan(view);
  EXPECT_EQ(tokens_of(plan, 1), 100);
  EXPECT_EQ(tokens_of(plan, 2), 0);
}

TEST(Sarathi, DecodesGoFirstAndThePromptGetsTheRestOfTheBudget) {
  const std::vector<SequenceView> running{prefill(1, 500, 0, 0), decode(2, 20, 2)};
  const std::vector<SequenceView> waiting{queued(3, 30)};
  SystemView view{.running = running, .waiting = waiting, .budget = kRoomy};
  SarathiPolicy policy(40);
  const StepPlan plan = policy.plan(view);
  EXPECT_EQ(tokens_of(plan, 2), 1);
  EXPECT_EQ(tokens_of(plan, 1), 39);
  EXPECT_TRUE(plan.admit.empty());
}

TEST(Sarathi, DecodesBeyondTheBudgetStillAllRun) {
  std::vector<SequenceView> running;
  for (int64_t id = 1; id <= 10; ++id) {
    running.push_back(decode(id, 20, 2));
  }
  SystemView view{.running = running, .waiting = {}, .budget = kRoomy};
  SarathiPolicy policy(4);
  EXPECT_EQ(policy.plan(view).slices.size(), 10U);
}

SequenceView best_effort(SequenceView view) {
  view.service_class = ServiceClass::kBestEffort;
  return view;
}

TEST(Sarathi, BestEffortDecodesGetTheirTokensBeforeLatencySensitivePromptsFillTheBudget) {
  const std::vector<SequenceView> running{best_effort(decode(1, 20, 2)), prefill(2, 500, 0, 0),
                                          best_effort(prefill(3, 500, 0, 0))};
  SystemView view{.running = running, .waiting = {}, .budget = kRoomy};
  SarathiPolicy policy(40);
  const StepPlan plan = policy.plan(view);
  EXPECT_EQ(tokens_of(plan, 1), 1);
  EXPECT_EQ(tokens_of(plan, 2), 39);
  EXPECT_EQ(tokens_of(plan, 3), 0);
}

TEST(Sarathi, AWaitingPromptOfALowerLevelGoesBeforeOneThatHasBegun) {
  SequenceView first = queued(2, 30);
  first.level = -1;
  const std::vector<SequenceView> running{prefill(1, 500, 100, 7)};
  const std::vector<SequenceView> waiting{first, queued(3, 30)};
  SystemView view{.running = running, .waiting = waiting, .budget = kRoomy};
  SarathiPolicy policy(40);
  const StepPlan plan = policy.plan(view);
  EXPECT_EQ(tokens_of(plan, 2), 30);
  EXPECT_EQ(tokens_of(plan, 1), 10);
  EXPECT_EQ(tokens_of(plan, 3), 0);
}

TEST(Llumnix, OnlyItsCpuFormSendsTheOverflowToTheHost) {
  const std::vector<SequenceView> running{best_effort(decode(1, 20, 2)),
                                          best_effort(decode(2, 20, 2))};
  StepBudget budget = kRoomy;
  budget.total_blocks = 100;
  budget.free_blocks = 19;  // one less than the headroom
  budget.host_free_blocks = 50;
  budget.host_total_blocks = 50;
  SystemView view{.running = running, .waiting = {}, .budget = budget};
  EXPECT_TRUE(LlumnixPolicy({.headroom_percent = 20}).plan(view).offload.empty());
  const StepPlan plan =
      LlumnixPolicy({.headroom_percent = 20, .overflow = BudgetRules::Overflow::kGoesToHost})
          .plan(view);
  EXPECT_EQ(plan.offload, std::vector<SequenceId>{SequenceId{2}});
  EXPECT_EQ(tokens_of(plan, 1), 1);
}

TEST(EveryPolicy, DropsTheNewestWhenBlocksRunOutAndAdmitsNobodyThen) {
  const std::vector<SequenceView> running{decode(1, 17, 1), decode(2, 17, 1), decode(3, 17, 1)};
  const std::vector<SequenceView> waiting{queued(4, 1)};
  StepBudget budget = kRoomy;
  budget.free_blocks = 1;  // every one of the three needs a block
  SystemView view{.running = running, .waiting = waiting, .budget = budget};
  for (const std::string_view name : policy_names()) {
    const auto policy = make_policy(name, {}, {.step_times = &step_times()}).value().step;
    const StepPlan plan = policy->plan(view);
    EXPECT_EQ(plan.preempt, std::vector<SequenceId>{SequenceId{3}}) << name;
    EXPECT_EQ(tokens_of(plan, 1), 1) << name;
    EXPECT_EQ(tokens_of(plan, 2), 1) << name;
    EXPECT_TRUE(plan.admit.empty()) << name;
  }
}

TEST(EveryPolicy, ALongPromptAtTheHeadIsNotOvertaken) {
  const std::vector<SequenceView> waiting{queued(1, 10000), queued(2, 1)};
  StepBudget budget = kRoomy;
  budget.free_blocks = 50;
  const std::vector<SequenceView> running{decode(9, 20, 2)};
  SystemView view{.running = running, .waiting = waiting, .budget = budget};
  for (const std::string_view name : policy_names()) {
    const auto policy = make_policy(name, {}, {.step_times = &step_times()}).value().step;
    EXPECT_TRUE(policy->plan(view).admit.empty()) << name;
  }
}

TEST(Registry, AnUnknownPolicyIsRefusedWithTheKnownOnes) {
  const auto policy = make_policy("fifo", {}, {});
  ASSERT_FALSE(policy.ok());
  EXPECT_NE(policy.error().message.find("accel_only"), std::string::npos);
}

TEST(Registry, OptionsOutOfTheirRangesAndStepTimesThatLackAreRefused) {
  for (const PolicyDescriptor* policy : policies()) {
    for (const PolicyOption* option : policy->options) {
      PolicyOptions options;
      options[*option] = option->min - 1;
      const auto made = make_policy(policy->name, options, {.step_times = &step_times()});
      ASSERT_FALSE(made.ok()) << policy->name;
      EXPECT_EQ(made.error().param, option->name);
    }
    EXPECT_EQ(make_policy(policy->name, {}, {}).ok(), !policy->traits.needs_step_times);
  }
}

TEST(Registry, SequencesMoveBackOnlyAboveTheShareBelowWhichTheyLeave) {
  PolicyOptions options;
  options[kOffloadBelow] = 60;
  EXPECT_EQ(piggyback_options(options).onload_above, 60);
  options[kOnloadAbove] = 70;
  EXPECT_EQ(piggyback_options(options).onload_above, 70);
}

TEST(Registry, WithoutStepTimesThePoliciesThatNeedNoneAreNamed) {
  const auto refused = make_policy(kOmniServe.name, {}, {});
  ASSERT_FALSE(refused.ok());
  const std::string& message = refused.error().message;
  const std::string named = message.substr(message.find('('));
  EXPECT_TRUE(named.starts_with("(accel_only, sarathi, piggyback, ")) << named;
  for (const std::string_view name : {"omniserve", "hygen,", "neo", "apex"}) {
    EXPECT_EQ(named.find(name), std::string::npos) << name;
  }
}

TEST(Registry, WhatIsTunedIsAnOptionOfThePolicy) {
  std::vector<std::string_view> tuned;
  for (const PolicyDescriptor* policy : policies()) {
    if (policy->traits.tuned != nullptr) {
      EXPECT_TRUE(reads_option(policy->name, *policy->traits.tuned)) << policy->name;
      tuned.push_back(policy->name);
    }
  }
  EXPECT_EQ(tuned, (std::vector<std::string_view>{"hygen", "hygen_star"}));
}

TEST(Registry, DescriptorsSayWhatTheirPoliciesAre) {
  EXPECT_EQ(find_policy("fifo"), nullptr);
  for (const PolicyDescriptor* policy : policies()) {
    EXPECT_EQ(find_policy(policy->name), policy);
    const PolicyParts parts = make_policy(policy->name, {}, {.step_times = &step_times()}).value();
    EXPECT_EQ(parts.step->name(), policy->name);
    EXPECT_NE(parts.make_binder(), nullptr) << policy->name;
    EXPECT_EQ(parts.admission != nullptr, policy->traits.admits) << policy->name;
  }
}

TEST(Registry, OptionsHaveOneNameAndTellWhoReadsThem) {
  std::vector<std::string_view> names;
  for (const PolicyOption* option : policy_options()) {
    names.push_back(option->name);
  }
  EXPECT_EQ(names, (std::vector<std::string_view>{"sarathi-token-budget",
                                                  "piggyback-token-budget",
                                                  "offload-below",
                                                  "onload-above",
                                                  "patience-steps",
                                                  "host-limit-steps",
                                                  "published-best-effort",
                                                  "llumnix-headroom",
                                                  "hygen-step-budget",
                                                  "step-budget-flex-only",
                                                  "flex-blocks",
                                                  "psm-utility",
                                                  "deadline-first",
                                                  "fair-tenants",
                                                  "hold-mean-tbt",
                                                  "hold-p99-tbt",
                                                  "hold-mean-ttft",
                                                  "hold-p99-ttft",
                                                  "flex-rate",
                                                  "neo-code-terms",
                                                  "max-held-steps",
                                                  "apex-host-rows",
                                                  "apex-real-window",
                                                  "apex-plus-form"}));
  EXPECT_EQ(policies_that_read(kOffloadBelow),
            "piggyback, overlap, lanes, omniserve, hygen, sarathi_pp, hygen_star");
}

}  // namespace
}  // namespace tandem
