// The policy of docs/design/writing-a-policy.md does what the page says, in virtual time.
#include <gtest/gtest.h>

#include <numeric>

#include "scheduler/policies/accel_only.h"
#include "shortest_first.h"
#include "support/virtual_world.h"

namespace tandem {
namespace {

using testing::expected_tokens;
using testing::make_request;
using testing::VirtualWorld;
using testing::WorldOptions;

constexpr int64_t kRequests = 40;

Request request_of(int64_t id) {
  std::vector<TokenId> prompt(id % 4 == 0 ? 60 : 5);
  std::iota(prompt.begin(), prompt.end(), static_cast<TokenId>(id));
  return make_request(std::move(prompt), 8, static_cast<uint64_t>(id));
}

// The mean time to the first token. All requests arrive at once, every fourth prompt is long.
Nanos mean_first_token(const PolicyDescriptor& policy) {
  WorldOptions options;
  options.make_policy = [&policy] { return policy.make({}, {}).value().step; };
  options.executor.limits.total_blocks = 512;
  options.audit = WorldOptions::Audit::kEachAdvance;
  VirtualWorld world(options);
  for (int64_t id = 1; id <= kRequests; ++id) {
    world.arrive(Nanos{0}, id, request_of(id));
  }
  world.run_until_idle();
  Nanos sum{0};
  for (int64_t id = 1; id <= kRequests; ++id) {
    EXPECT_EQ(world.outcome(id).tokens, expected_tokens(request_of(id), 0));
    sum += world.outcome(id).times.at(0);
  }
  return sum / kRequests;
}

TEST(PoliciesDocument, ItsPolicyAnswersAllAndShortPromptsSooner) {
  EXPECT_LT(mean_first_token(kShortestFirst), mean_first_token(kAccelOnly));
}

TEST(PoliciesDocument, ItsDescriptorSaysWhatThePolicyReads) {
  EXPECT_EQ(kShortestFirst.name, "shortest_first");
  ASSERT_EQ(kShortestFirst.options.size(), 1U);
  EXPECT_EQ(kShortestFirst.options[0], &kShortestWindow);
  EXPECT_FALSE(kShortestFirst.traits.needs_step_times);
}

}  // namespace
}  // namespace tandem
