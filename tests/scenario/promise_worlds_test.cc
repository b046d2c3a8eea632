// The guarantees of omniserve and its admission in random worlds, looked at after every step.
// TANDEM_PROMISE_WORLDS=FIRST:LAST runs other seeds than those of every day
// (scripts/promise_worlds.sh).
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/promise_worlds.h"

namespace tandem {
namespace {

TEST(PromiseWorlds, KeepEveryGuarantee) {
  uint64_t first = 1;
  uint64_t last = 300;
  if (const char* range = std::getenv("TANDEM_PROMISE_WORLDS"); range != nullptr) {
    char* rest = nullptr;
    first = std::strtoull(range, &rest, 10);
    ASSERT_EQ(*rest, ':') << "TANDEM_PROMISE_WORLDS is FIRST:LAST, not " << range;
    last = std::strtoull(rest + 1, nullptr, 10);
  }
  testing::PromiseTally all;
  int64_t broken = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    const testing::PromiseTally tally =
        testing::run_promise_world(testing::random_promise_world(seed));
    all.refused += tally.refused;
    all.promised += tally.promised;
    all.late += tally.late;
    all.slow += tally.slow;
    all.found.steps += tally.found.steps;
    all.found.verdicts += tally.found.verdicts;
    if (tally.found.count == 0) {
      continue;
    }
    if (++broken <= 10) {
      for (const std::string& what : tally.found.broken) {
        ADD_FAILURE() << "seed " << seed << ": " << what;
      }
    }
  }
  std::printf(
      "%llu worlds, %lld broken; %lld steps, %lld verdicts, %lld refused, %lld promised, "
      "%lld late, %lld slow\n",
      static_cast<unsigned long long>(last - first + 1), static_cast<long long>(broken),
      static_cast<long long>(all.found.steps), static_cast<long long>(all.found.verdicts),
      static_cast<long long>(all.refused), static_cast<long long>(all.promised),
      static_cast<long long>(all.late), static_cast<long long>(all.slow));
  EXPECT_EQ(broken, 0);
  EXPECT_GT(all.promised, 0);
}

// Worlds in which a guarantee was broken once. In the first four several prompts waited for places
// or blocks, each for a step of its own; then best effort came after a promise and claimed its
// part; an overdue head waited behind a promised line; an overdue prompt left room for one. In the
// next four decodes took the blocks, or one that came back from the host the place, that seemed to
// be free. Then a best-effort prompt took the time that overdue decodes claimed. In the last two a
// step made room, and waited for a hop before anybody could use it.
TEST(PromiseWorlds, AreKeptWhereTheyWereBroken) {
  for (const uint64_t seed : {105077, 105694, 106184, 113168, 105666, 109409, 202978, 310779,
                              314186, 317193, 340339, 346173, 406209, 408631, 506965, 507538}) {
    const testing::PromiseTally tally =
        testing::run_promise_world(testing::random_promise_world(seed));
    for (const std::string& what : tally.found.broken) {
      ADD_FAILURE() << "seed " << seed << ": " << what;
    }
  }
}

}  // namespace
}  // namespace tandem
