// A plan for which there is no room costs the sequences that it named a step, and at worst one
// request; never the server.
#include <gtest/gtest.h>

#include "base/log.h"
#include "plan/fcfs_order.h"
#include "support/two_tier_world.h"

namespace tandem {
namespace {

using namespace std::chrono_literals;
using testing::expect_drained;
using testing::expected_tokens;
using testing::make_request;
using testing::Outcome;
using testing::prompt_of;
using testing::two_tiers;
using testing::VirtualWorld;
using testing::WorldOptions;

// Plans whatever there is, without a look at what is free, and sequences that do not run or have
// fewer tokens.
class RecklessPolicy final : public StepPolicy {
 public:
  [[nodiscard]] std::string_view name() const override { return "reckless"; }
  [[nodiscard]] std::unique_ptr<QueueOrder> make_queue_order() const override {
    return fcfs_order(FcfsOrder::By::kArrival);
  }

  StepPlan plan(const SystemView& view) override {
    StepPlan plan;
    int32_t tokens = view.budget.tokens;
    const auto add = [&](const SequenceView& sequence) {
      const int32_t chunk = std::min(sequence.pending_tokens(), tokens);
      if (chunk > 0) {
        plan.slices.push_back({sequence.id, chunk});
        tokens -= chunk;
      }
      return chunk > 0;
    };
    for (const SequenceView& sequence : view.running) {
      if (view.budget.host_total_blocks > 0 && sequence.decodes() && view.step % 3 == 0) {
        plan.offload.push_back(sequence.id);
      } else {
        add(sequence);
      }
    }
    for (const SequenceView& sequence : view.offloaded) {
      if (sequence.state == SequenceState::kParkedWaiting && view.step % 5 == 0) {
        plan.onload.push_back(sequence.id);
      }
      plan.slices.push_back({sequence.id, 1});
    }
    if (!view.running.empty() && view.step % 7 == 0) {
      const SequenceView& newest = view.running.back();
      plan.slices.push_back({newest.id, newest.pending_tokens() + 1});
    }
    for (const SequenceView& sequence : view.waiting) {
      if (add(sequence)) {
        plan.admit.push_back(sequence.id);
      }
    }
    return plan;
  }
};

// How many choices were answered in full.
int run_reckless(int64_t host_blocks, uint64_t seed) {
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  WorldOptions options;
  options.make_policy = [] { return std::make_unique<RecklessPolicy>(); };
  options.executor.limits.total_blocks = 12;
  options.executor.limits.max_logit_rows = 6;
  options.executor.limits.host_blocks = host_blocks;
  options.executor.limits.offloaded_sequences = host_blocks > 0 ? 8 : 0;
  options.executor.host.seed = seed;
  options.audit = WorldOptions::Audit::kEachAdvance;
  VirtualWorld world(options);
  std::map<int64_t, Request> requests;
  for (int64_t id = 1; id <= 16; ++id) {
    requests[id] = make_request(prompt_of(1 + static_cast<int>(random() % 20)),
                                1 + static_cast<int32_t>(random() % 20), random() % 3);
    requests[id].n = 1 + static_cast<int32_t>(random() % 4);
    world.arrive(std::chrono::microseconds(random() % 20000), id, requests[id]);
  }
  world.run_until_idle();
  int answered = 0;
  for (const auto& [id, request] : requests) {
    for (int32_t choice = 0; choice < request.n; ++choice) {
      const Outcome& outcome = world.outcome(id, choice);
      EXPECT_EQ(outcome.finishes, 1) << "request " << id;
      if (outcome.error.empty()) {
        EXPECT_EQ(outcome.tokens, expected_tokens(request, choice)) << "request " << id;
        ++answered;
      }
    }
  }
  EXPECT_GT(world.put_off(), 0);
  expect_drained(world);
  return answered;
}

class EngineShortage : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(log::start("off").ok()); }
  void TearDown() override { ASSERT_TRUE(log::start("info").ok()); }
};

TEST_F(EngineShortage, OnOneTierCostsTheSequencesThatLackBlocksAStep) {
  int answered = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    answered += run_reckless(0, seed);
  }
  EXPECT_GT(answered, 1000);
}

TEST_F(EngineShortage, OnTwoTiersCostsOtherSequencesNothing) {
  int answered = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    answered += run_reckless(1 + static_cast<int64_t>(seed % 20), seed);
  }
  EXPECT_GT(answered, 200);
}

// The last sequence ends while blocks of it are still being written to the host.
TEST_F(EngineShortage, TheEngineIsNotIdleWhileCopiesBetweenTheTiersRun) {
  int still_copying = 0;
  for (int at = 0; at < 60; ++at) {
    SCOPED_TRACE(at);
    WorldOptions options = testing::two_tiers({});
    options.make_policy = {};
    options.policy = "piggyback";
    options.policy_options[kPiggybackTokenBudget] = 16;
    options.policy_options[kOffloadBelow] = 100;
    options.policy_options[kOnloadAbove] = 100;
    options.executor.host.max_copy = 8ms;
    VirtualWorld world(options);
    Request request = make_request(prompt_of(60), 20);
    request.service_class = ServiceClass::kBestEffort;
    world.arrive(0ms, 1, request);
    const Nanos end = std::chrono::microseconds(200 * at);
    world.cancel(end, 1);
    world.run_until_idle();
    still_copying += world.now() > end + 2ms ? 1 : 0;  // longer than a step
    expect_drained(world);
  }
  EXPECT_GT(still_copying, 10);
}

// As another policy, but all offloaded sequences are held except the sequence with the fewest
// tokens.
class ShortestFirstPolicy final : public StepPolicy {
 public:
  explicit ShortestFirstPolicy(StepPolicy& policy) : policy_(policy) {}
  [[nodiscard]] std::string_view name() const override { return policy_.name(); }
  [[nodiscard]] std::unique_ptr<QueueOrder> make_queue_order() const override {
    return policy_.make_queue_order();
  }
  StepPlan plan(const SystemView& view) override {
    StepPlan plan = policy_.plan(view);
    const auto first = std::ranges::min_element(view.offloaded, {}, &SequenceView::known_tokens);
    for (const SequenceView& sequence : view.offloaded) {
      if (sequence.id != first->id) {
        plan.hold.push_back(sequence.id);
      }
    }
    return plan;
  }

 private:
  StepPolicy& policy_;
};

TEST_F(EngineShortage, ASequenceThatIsHeldLeavesItsPlaceInTheExecutorToAnother) {
  constexpr int32_t kPlaces = 2;
  constexpr int32_t kTokens = 12;
  WorldOptions options = two_tiers({}, 1600, 64, kPlaces);
  options.make_policy = {};
  options.policy = "piggyback";
  options.policy_options[kOffloadBelow] = 100;
  options.policy_options[kOnloadAbove] = 100;
  options.watch_policy = [](StepPolicy& policy) {
    return std::make_unique<ShortestFirstPolicy>(policy);
  };
  VirtualWorld world(options);
  Request guest = make_request(prompt_of(5), kTokens);
  guest.service_class = ServiceClass::kBestEffort;
  for (int id = 1; id <= kPlaces + 2; ++id) {
    world.arrive(0ms, id, guest);
  }
  world.arrive(0ms, 9, make_request(prompt_of(5, 500), 2000));
  world.run_until_idle();
  for (int id = 2; id <= kPlaces + 2; ++id) {  // all take turns
    ASSERT_EQ(world.outcome(id).tokens, expected_tokens(guest, 0));
    EXPECT_LT(world.outcome(id).times[5], world.outcome(1).times[8]) << id;
    EXPECT_LT(world.outcome(1).times[5], world.outcome(id).times[8]) << id;
  }
  expect_drained(world);
}

}  // namespace
}  // namespace tandem
