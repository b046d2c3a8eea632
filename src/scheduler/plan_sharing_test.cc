// Blocks that several sequences use: plans count each once, and drop no sequence that frees none.
#include <gtest/gtest.h>

#include <algorithm>

#include "latency/modular_model.h"
#include "scheduler/plan_builder.h"
#include "scheduler/policies/registry.h"

namespace tandem {
namespace {

constexpr StepBudget kBudget{
    .tokens = 64, .logit_rows = 16, .sequences = 16, .total_blocks = 100, .block_tokens = 4};

SequenceView decode(int64_t id, ServiceClass service_class, int32_t held, int32_t own) {
  return {.id = SequenceId{id},
          .request = RequestId{id},
          .state = SequenceState::kDecoding,
          .service_class = service_class,
          .known_tokens = held * 4,
          .computed_tokens = held * 4 - 1,
          .held_blocks = held,
          .own_blocks = own,
          .transfer_blocks = held};
}
SequenceView latency_sensitive(int64_t id, int32_t held, int32_t own) {
  return decode(id, ServiceClass::kLatencySensitive, held, own);
}
SequenceView best_effort(int64_t id, int32_t held, int32_t own) {
  return decode(id, ServiceClass::kBestEffort, held, own);
}
// Choices of one request that share all blocks: each would have to copy the one that it writes.
std::vector<SequenceView> choices(int64_t first, int64_t count, ServiceClass service_class) {
  std::vector<SequenceView> made;
  for (int64_t id = first; id < first + count; ++id) {
    made.push_back(decode(id, service_class, 3, 0));
    made.back().request = RequestId{first};
    made.back().copy_blocks = 1;
  }
  return made;
}
// Begins like a running sequence that uses these blocks.
SequenceView waiting(int64_t id, int32_t shared_blocks) {
  return {.id = SequenceId{id},
          .request = RequestId{id},
          .known_tokens = shared_blocks * 4 + 1,
          .computed_tokens = shared_blocks * 4};
}

SystemView view_of(std::span<const SequenceView> running, int64_t free_blocks) {
  SystemView view;
  view.running = running;
  view.budget = kBudget;
  view.budget.free_blocks = free_blocks;
  return view;
}

std::vector<SequenceId> ids(std::initializer_list<int64_t> numbers) {
  std::vector<SequenceId> made;
  for (const int64_t number : numbers) {
    made.push_back(SequenceId{number});
  }
  return made;
}

TEST(PlanBuilder, BlocksOfADroppedSequenceThatAnAdmittedOneTookOverAreNotFree) {
  const std::vector<SequenceView> running{best_effort(1, 3, 3)};
  const SystemView view = view_of(running, 1);
  PlanBuilder builder(view);
  EXPECT_EQ(builder.admit(waiting(2, 2), 1), Fit::kFits);
  EXPECT_EQ(builder.blocks_left(), 0);
  builder.preempt(running[0]);
  EXPECT_EQ(builder.blocks_left(), 1);  // of three, two are the admitted one's now
}

TEST(PlanBuilder, AnAdmittedSequenceTakesItsPrefixFromWhatADroppedOneFreed) {
  const std::vector<SequenceView> running{best_effort(1, 3, 3)};
  const SystemView view = view_of(running, 0);
  PlanBuilder builder(view);
  builder.preempt(running[0]);
  EXPECT_EQ(builder.blocks_left(), 3);
  EXPECT_EQ(builder.admit(waiting(2, 3), 1), Fit::kNoBlocks);  // three of its own and a fourth
  EXPECT_EQ(builder.admit(waiting(3, 2), 1), Fit::kFits);
  EXPECT_EQ(builder.blocks_left(), 0);
}

TEST(PlanBuilder, CopiesOfSharedBlocksArePromisedToThoseThatRun) {
  const std::vector<SequenceView> running = choices(1, 3, ServiceClass::kBestEffort);
  const SystemView view = view_of(running, 3);
  PlanBuilder builder(view);
  EXPECT_EQ(builder.admit(waiting(9, 0), 1), Fit::kNoBlocks);
  EXPECT_EQ(builder.missing_to_admit(waiting(9, 0), 1), 1);
  for (const SequenceView& choice : running) {
    EXPECT_EQ(builder.add(choice, 1), Fit::kFits);
  }
}

TEST(PlanBuilder, WhereNoSequenceCanGoOnTheNewestThatSharesAllItsBlocksIsDropped) {
  std::vector<SequenceView> running = choices(1, 3, ServiceClass::kBestEffort);
  SystemView view = view_of(running, 0);
  {
    PlanBuilder builder(view);
    EXPECT_EQ(builder.add(running[0], 1), Fit::kNoBlocks);
    EXPECT_EQ(builder.finish().preempt, ids({3}));
  }
  {
    PlanBuilder builder(view);  // no sequence asked
    EXPECT_TRUE(builder.finish().preempt.empty());
  }
  SequenceView leaving = best_effort(9, 2, 2);
  leaving.state = SequenceState::kOffloading;
  const std::vector<SequenceView> offloaded{leaving};
  view.offloaded = offloaded;
  PlanBuilder builder(view);
  EXPECT_EQ(builder.add(running[0], 1), Fit::kNoBlocks);
  EXPECT_TRUE(builder.finish().preempt.empty());  // blocks are on their way
}

// ---------------------------------------------------------------- every policy

const latency::CorrectedModel& step_times() {
  static const latency::CorrectedModel model(
      std::make_unique<latency::ModularModel>(latency::simple_model(
          {.layers = 2, .fixed = std::chrono::milliseconds(1), .per_row = Nanos{10'000}})));
  return model;
}

class EveryPolicy : public ::testing::TestWithParam<std::string_view> {
 protected:
  [[nodiscard]] static StepPlan plan(const SystemView& view) {
    return make_policy(GetParam(), {}, {.step_times = &step_times()}).value().step->plan(view);
  }
  [[nodiscard]] static bool knows_classes() {
    return policy_traits(GetParam()).reads.service_class;
  }
};
INSTANTIATE_TEST_SUITE_P(Policies, EveryPolicy, ::testing::ValuesIn(policy_names()),
                         [](const auto& test) { return std::string(test.param); });

bool takes_part(const StepPlan& plan, int64_t id) {
  return std::ranges::count(plan.slices, SequenceId{id}, &StepPlan::Slice::sequence) > 0;
}

// The waiting sequence would cost one block, and the last running one, whose blocks it shares, is
// the first to go when the choices lack theirs.
TEST_P(EveryPolicy, AdmitsNoneBesideAndAheadOfADropOfWhatItShares) {
  for (int64_t free = 0; free <= 8; ++free) {
    std::vector<SequenceView> running{latency_sensitive(1, 2, 2)};
    std::ranges::copy(choices(2, 4, ServiceClass::kBestEffort), std::back_inserter(running));
    running.push_back(best_effort(8, 3, 3));
    SystemView view = view_of(running, free);
    const std::vector<SequenceView> queue{waiting(9, 2)};
    view.waiting = queue;
    const StepPlan made = plan(view);
    EXPECT_TRUE(made.admit.empty() || made.preempt.empty()) << free;
    int64_t needed = made.admit.empty() ? 0 : 1;
    for (int64_t id = 2; id <= 5; ++id) {
      needed += takes_part(made, id) ? 1 : 0;
    }
    EXPECT_LE(needed, free + (made.preempt.empty() ? 0 : 3)) << free;
    EXPECT_EQ(made.admit.empty(), free < 5) << free;
  }
}

TEST_P(EveryPolicy, SequencesThatWouldFreeNoBlockWaitWhileAnotherRuns) {
  std::vector<SequenceView> running{latency_sensitive(1, 2, 2)};
  std::ranges::copy(choices(2, 7, ServiceClass::kBestEffort), std::back_inserter(running));
  const SystemView view = view_of(running, 2);
  const StepPlan made = plan(view);
  EXPECT_TRUE(made.preempt.empty());
  EXPECT_TRUE(takes_part(made, 1) && takes_part(made, 2) && takes_part(made, 3));
  EXPECT_EQ(made.slices.size(), 3U);
}

TEST_P(EveryPolicy, OfSequencesThatAllShareTheirBlocksOneGoesAtATimeUntilTheOthersCanGoOn) {
  const std::vector<SequenceView> running = choices(1, 8, ServiceClass::kBestEffort);
  EXPECT_EQ(plan(view_of(running, 0)).preempt, ids({8}));
}

TEST_P(EveryPolicy, ChoicesThatShareTheirBlocksGoTogetherWhereAnOlderSequenceNeedsThem) {
  std::vector<SequenceView> running{latency_sensitive(1, 2, 2), latency_sensitive(2, 2, 2)};
  running[0].known_tokens = 9;  // it begins a third block
  running[0].computed_tokens = 8;
  std::ranges::copy(choices(3, 3, ServiceClass::kBestEffort), std::back_inserter(running));
  const StepPlan made = plan(view_of(running, 0));
  if (knows_classes()) {
    EXPECT_EQ(made.preempt, ids({5, 4, 3}));
    EXPECT_TRUE(takes_part(made, 2));
    EXPECT_FALSE(takes_part(made, 1));  // in the next step, when it is known what they have freed
  } else {
    EXPECT_EQ(made.preempt, ids({2}));  // the newest with blocks of its own, whatever its class
    EXPECT_TRUE(takes_part(made, 1));
  }
}

}  // namespace
}  // namespace tandem
