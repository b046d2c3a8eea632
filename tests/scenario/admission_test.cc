// What admission promises, in virtual time: under any arrivals a latency-sensitive (LS) request
// that was let in gets its first token in time and keeps its TPOT, as far as the model of time is
// right.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "support/virtual_world.h"

namespace tandem {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing::make_request;
using testing::Outcome;
using testing::VirtualWorld;
using testing::WorldOptions;

// 2 ms a step, 50 us a row, 20 ns a token attended to.
WorldOptions world_options() {
  WorldOptions options;
  options.policy = "omniserve";
  options.admits = WorldOptions::Admits::kYes;
  options.executor.limits = {.max_batched_tokens = 512,
                             .max_logit_rows = 64,
                             .total_blocks = 1200,
                             .block_tokens = 16,
                             .host_blocks = 0};
  options.executor.step_fixed = milliseconds(2);
  options.executor.per_token = microseconds(50);
  options.executor.per_attended = Nanos{20};
  options.engine.max_running = 64;
  return options;
}

struct Traffic {
  uint64_t seed = 1;
  Nanos length = std::chrono::seconds(4);
  Nanos ls_every = milliseconds(40);  // on average
  Nanos be_every = milliseconds(100);
  int64_t longest_be = 900;  // prompt
  double burst = 0.3;        // the chance that an arrival brings others with it
  enum class Targets : uint8_t { kAll, kSome } targets = Targets::kAll;  // kSome: both, one or none
};

struct Tally {
  int64_t ls = 0;
  int64_t refused = 0;
  int64_t promised = 0;
  int64_t late = 0;  // promised first tokens after their target
  int64_t slow = 0;  // TPOT
  Nanos latest{0};
  double worst_share = 0;  // TTFT over target
  int64_t best_effort_tokens = 0;
  Nanos longest_be{0};
  [[nodiscard]] int64_t met() const { return promised - std::max(late, slow); }
};

class Random {
 public:
  explicit Random(uint64_t seed) : bits_(seed) {}
  int64_t whole(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(bits_() % static_cast<uint64_t>(high - low + 1));
  }
  double unit() { return static_cast<double>(bits_() >> 11) * 0x1.0p-53; }
  Nanos wait(Nanos mean) {
    return Nanos{static_cast<int64_t>(-std::log(1 - unit()) * static_cast<double>(mean.count()))};
  }

 private:
  std::mt19937_64 bits_;
};

Request random_ls(Random& random, const Traffic& traffic, TokenId first) {
  std::vector<TokenId> prompt(
      static_cast<size_t>(random.unit() < 0.1 ? random.whole(300, 900) : random.whole(4, 200)));
  std::iota(prompt.begin(), prompt.end(), first);
  Request request = make_request(std::move(prompt), static_cast<int32_t>(random.whole(1, 80)));
  request.level = static_cast<int32_t>(random.unit() < 0.2 ? random.whole(-2, 2) : 0);
  request.n = static_cast<int32_t>(random.unit() < 0.1 ? random.whole(2, 4) : 1);
  if (traffic.targets == Traffic::Targets::kAll || random.unit() < 0.7) {
    request.slo.ttft = TtftRule{.base = milliseconds(random.whole(30, 500))};
  }
  if (traffic.targets == Traffic::Targets::kAll || random.unit() < 0.7) {
    request.slo.tpot = milliseconds(random.whole(12, 40));
  }
  return request;
}

Tally run(WorldOptions options, const Traffic& traffic) {
  Random random(traffic.seed);
  VirtualWorld world(std::move(options));
  std::map<int64_t, Request> asked;
  std::map<int64_t, Nanos> arrivals;
  int64_t id = 0;
  TokenId first = 0;
  for (Nanos at{0}; at < traffic.length; at += random.wait(traffic.ls_every)) {
    const int64_t crowd = random.unit() < traffic.burst ? random.whole(2, 8) : 1;
    for (int64_t i = 0; i < crowd; ++i) {
      Request request = random_ls(random, traffic, first += 1000);
      asked[++id] = request;
      arrivals[id] = at;
      world.arrive(at, id, request);
    }
  }
  for (Nanos at{0}; at < traffic.length; at += random.wait(traffic.be_every)) {
    std::vector<TokenId> prompt(static_cast<size_t>(random.whole(10, traffic.longest_be)));
    std::iota(prompt.begin(), prompt.end(), first += traffic.longest_be + 100);
    Request request = make_request(std::move(prompt), static_cast<int32_t>(random.whole(10, 200)));
    request.service_class = kBe;
    asked[++id] = request;
    arrivals[id] = at;
    world.arrive(at, id, request);
  }
  world.run_until_idle();
  Tally tally;
  for (const auto& [name, request] : asked) {
    const Outcome& outcome = world.outcome(name);
    if (request.service_class == kBe) {
      EXPECT_EQ(outcome.finishes, 1) << "best effort " << name;
      tally.best_effort_tokens += std::ssize(outcome.tokens);
      tally.longest_be = std::max(tally.longest_be, outcome.times.back() - arrivals[name]);
      continue;
    }
    ++tally.ls;
    if (outcome.refused()) {
      ++tally.refused;
      EXPECT_EQ(outcome.finishes, 0);
      continue;
    }
    EXPECT_EQ(outcome.finishes, 1) << "request " << name;
    const Nanos ttft = outcome.times.front() - arrivals[name];
    if (outcome.verdict->answer != AdmissionAnswer::kAccept) {
      continue;
    }
    ++tally.promised;
    if (request.slo.ttft.has_value()) {
      const Nanos target = request.slo.ttft->base;
      tally.late += ttft > target ? 1 : 0;
      tally.latest = std::max(tally.latest, ttft - target);
      tally.worst_share = std::max(tally.worst_share, static_cast<double>(ttft.count()) /
                                                          static_cast<double>(target.count()));
    }
    for (int32_t choice = 0; choice < request.n && request.slo.tpot.has_value(); ++choice) {
      const Outcome& one = world.outcome(name, choice);
      const int64_t gaps = std::ssize(one.times) - 1;
      if (gaps > 0 && (one.times.back() - one.times.front()) / gaps > *request.slo.tpot) {
        ++tally.slow;
        break;
      }
    }
  }
  return tally;
}

std::string describe(const Tally& tally) {
  return fmt::format(
      "{} LS, {} refused, {} promised, {} late (by {} us at most, {:.2f} of a target), {} slow, {} "
      "best-effort tokens, the longest took {} ms",
      tally.ls, tally.refused, tally.promised, tally.late, tally.latest.count() / 1000,
      tally.worst_share, tally.slow, tally.best_effort_tokens, tally.longest_be.count() / 1000000);
}

// However they come, of whatever length, level and target.
TEST(AdmissionPromise, IsKeptUnderAnyArrivalsWhereTheModelIsRight) {
  int64_t refused = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed * 77);
    Traffic traffic{.seed = seed};
    traffic.ls_every = milliseconds(random.whole(5, 80));
    traffic.be_every = milliseconds(random.whole(20, 300));
    traffic.targets = seed % 4 == 0 ? Traffic::Targets::kSome : Traffic::Targets::kAll;
    const Tally tally = run(world_options(), traffic);
    EXPECT_EQ(tally.late, 0) << "seed " << seed << ": " << describe(tally);
    EXPECT_EQ(tally.slow, 0) << "seed " << seed << ": " << describe(tally);
    EXPECT_GT(tally.promised, 50) << "seed " << seed << ": " << describe(tally);
    EXPECT_GT(tally.best_effort_tokens, 1000) << "seed " << seed << ": " << describe(tally);
    refused += tally.refused;
  }
  EXPECT_GT(refused, 1000);
}

// The attention of a best-effort prompt takes longer than its rows.
TEST(AdmissionPromise, IsKeptBesideLongBestEffortPrompts) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    Traffic traffic{.seed = seed, .length = std::chrono::seconds(2), .longest_be = 8000};
    traffic.be_every = milliseconds(200);
    WorldOptions options = world_options();
    options.executor.limits.total_blocks = 3000;
    options.executor.per_attended = Nanos{50};
    const Tally tally = run(std::move(options), traffic);
    EXPECT_EQ(tally.late, 0) << "seed " << seed << ": " << describe(tally);
    EXPECT_EQ(tally.slow, 0) << "seed " << seed << ": " << describe(tally);
    EXPECT_GT(tally.promised, 25) << "seed " << seed << ": " << describe(tally);
  }
}

// Twice as much as there is time for.
TEST(AdmissionPromise, IsKeptAtTwiceTheLoad) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Traffic traffic{.seed = seed, .burst = 0.1};
    traffic.ls_every = milliseconds(9);
    const Tally tally = run(world_options(), traffic);
    EXPECT_GE(tally.met() * 100, tally.promised * 99) << "seed " << seed << ": " << describe(tally);
    EXPECT_EQ(tally.late, 0) << "seed " << seed << ": " << describe(tally);
    EXPECT_GE(tally.refused * 10, tally.ls * 3) << "seed " << seed << ": " << describe(tally);
    EXPECT_GE(tally.promised, 300) << "seed " << seed << ": " << describe(tally);
    EXPECT_LE(tally.longest_be, std::chrono::seconds(10)) << describe(tally);
  }
}

TEST(AdmissionPromise, IsKeptOnTwoTiers) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Traffic traffic{.seed = seed};
    traffic.ls_every = milliseconds(30);
    traffic.be_every = milliseconds(60);
    WorldOptions options = world_options();
    options.executor.limits.total_blocks = 600;
    options.executor.limits.host_blocks = 2000;
    options.executor.limits.offloaded_sequences = 64;
    const Tally tally = run(std::move(options), traffic);
    EXPECT_EQ(tally.late, 0) << "seed " << seed << ": " << describe(tally);
    EXPECT_EQ(tally.slow, 0) << "seed " << seed << ": " << describe(tally);
    EXPECT_GT(tally.promised, 150) << "seed " << seed << ": " << describe(tally);
  }
}

// A thousand at the same moment, and best effort beside them.
TEST(AdmissionPromise, IsKeptInAFlood) {
  VirtualWorld world(world_options());
  for (int64_t id = 1; id <= 1000; ++id) {
    std::vector<TokenId> prompt(100);
    std::iota(prompt.begin(), prompt.end(), static_cast<TokenId>(id * 200));
    Request request = make_request(std::move(prompt), 20);
    request.slo = {.ttft = TtftRule{.base = milliseconds(200)}, .tpot = milliseconds(20)};
    world.arrive(milliseconds(5), id, std::move(request));
  }
  Request best_effort = make_request(std::vector<TokenId>(300, 7), 50);
  best_effort.service_class = kBe;
  world.arrive(milliseconds(5), 2000, best_effort);
  world.run_until_idle();
  int64_t accepted = 0;
  for (int64_t id = 1; id <= 1000; ++id) {
    const Outcome& outcome = world.outcome(id);
    if (outcome.refused()) {
      ASSERT_TRUE(outcome.verdict->retry_after.has_value());
      EXPECT_LE(*outcome.verdict->retry_after, std::chrono::seconds(10));
      continue;
    }
    ++accepted;
    EXPECT_LE(outcome.times.front() - milliseconds(5), milliseconds(200)) << id;
    EXPECT_LE((outcome.times.back() - outcome.times.front()) / 19, milliseconds(20)) << id;
  }
  EXPECT_GE(accepted, 15);
  EXPECT_LE(accepted, 63);
  EXPECT_EQ(world.outcome(2000).finishes, 1);
}

// What a model that is half or one and a half times the truth costs, with learning and without:
// every request ends (run looks), best effort waits no longer, few promises are broken, and by
// little.
TEST(AdmissionPromise, DegradesGracefullyWhereTheModelIsWrong) {
  struct Case {
    int32_t belief_percent;
    WorldOptions::Learning learning;
    double kept;  // share of the promises, at least
    Nanos latest;
  };
  const auto kLearns = WorldOptions::Learning::kYes;
  const auto kDoesNot = WorldOptions::Learning::kNo;
  for (const Case& one :
       {Case{50, kLearns, 0.9, milliseconds(100)}, Case{50, kDoesNot, 0.8, milliseconds(250)},
        Case{150, kLearns, 1, Nanos{0}}, Case{150, kDoesNot, 1, Nanos{0}}}) {
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      WorldOptions options = world_options();
      options.belief_percent = one.belief_percent;
      options.learning = one.learning;
      const Tally tally = run(std::move(options), {.seed = seed});
      const std::string what =
          fmt::format("belief {} %, seed {}: {}", one.belief_percent, seed, describe(tally));
      EXPECT_GE(static_cast<double>(tally.met()), one.kept * static_cast<double>(tally.promised))
          << what;
      EXPECT_LE(tally.latest, one.latest) << what;
      EXPECT_LE(tally.longest_be, std::chrono::seconds(8)) << what;
      EXPECT_GE(tally.promised, 80) << what;
    }
  }
}

}  // namespace
}  // namespace tandem
