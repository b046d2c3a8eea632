// How many latency-sensitive requests are refused only because best effort is there, in random
// worlds whose latency-sensitive load is below what the machine can serve. Virtual time; each world
// is a function of its seed. TANDEM_FLEX_WORLDS=FIRST:LAST runs other seeds than those of every
// day.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "support/promise_worlds.h"

namespace tandem {
namespace {

using testing::make_request;
using testing::PromiseDice;
using testing::VirtualWorld;
using testing::WorldOptions;

struct FlexWorld {
  WorldOptions options;
  std::map<int64_t, std::pair<Nanos, Request>> sensitive;
  std::map<int64_t, std::pair<Nanos, Request>> flex;
};

Request request_of(int64_t prompt_tokens, int64_t output_tokens, ServiceClass service_class,
                   TokenId first) {
  std::vector<TokenId> prompt(static_cast<size_t>(prompt_tokens));
  std::iota(prompt.begin(), prompt.end(), first);
  Request request = make_request(std::move(prompt), static_cast<int32_t>(output_tokens));
  request.service_class = service_class;
  return request;
}

// Requests a second that the machine can serve within `pace` a step: rows, places and blocks.
double capacity_of(const WorldOptions& options, Nanos pace, double prompt, double output) {
  const auto& machine = options.executor;
  const double step = to_seconds(pace);
  const double attended = to_seconds(machine.per_attended) * (prompt + output / 2);
  const double rows =
      std::min((step - to_seconds(machine.step_fixed)) / (to_seconds(machine.per_token) + attended),
               static_cast<double>(machine.limits.max_batched_tokens));
  const double stay = step * (output + 2);
  const double tokens =
      static_cast<double>(machine.limits.total_blocks - 1) * machine.limits.block_tokens;
  return std::min({rows / step / (prompt + output), options.engine.max_running / stay,
                   tokens / (prompt + output) / stay});
}

FlexWorld random_flex_world(uint64_t seed) {
  PromiseDice dice(seed);
  FlexWorld world;
  world.options = testing::random_machine(dice);
  world.options.admits = WorldOptions::Admits::kYes;
  world.options.executor.host.failures_per_thousand = 0;
  ExecutorLimits& limits = world.options.executor.limits;
  limits.total_blocks = std::max<int64_t>(limits.total_blocks, 400);
  const Nanos hundred_rows =
      world.options.executor.step_fixed + world.options.executor.per_token * 100;
  const int64_t prompt = dice.spread(16, 200);
  const int64_t output = dice.spread(4, 60);
  const Nanos tpot = hundred_rows * dice.whole(2, 6);
  const Nanos ttft = tpot * dice.whole(8, 80);
  const double capacity = capacity_of(world.options, tpot * 24 / 25, static_cast<double>(prompt),
                                      static_cast<double>(output));
  const double share = 0.1 + 0.7 * dice.unit();
  const Nanos every{static_cast<int64_t>(1e9 / (capacity * share))};
  const Nanos length = every * 150;
  TokenId first = 0;
  int64_t id = 0;
  for (Nanos at = dice.wait(every); at < length; at += dice.wait(every)) {
    Request request = request_of(dice.whole(prompt / 2 + 1, prompt * 3 / 2),
                                 dice.whole(output / 2 + 1, output * 3 / 2),
                                 ServiceClass::kLatencySensitive, first += 10000);
    request.slo = {.ttft = TtftRule{.base = ttft}, .tpot = tpot};
    world.sensitive[++id] = {at, std::move(request)};
  }
  // Best effort alone is one to three times what the machine can do.
  const int64_t flex_prompt = dice.spread(20, 2000);
  const int64_t flex_output = dice.spread(1, 200);
  const double flex_capacity =
      capacity_of(world.options, tpot * 24 / 25, static_cast<double>(flex_prompt),
                  static_cast<double>(flex_output));
  const Nanos flex_every{static_cast<int64_t>(1e9 / (flex_capacity * (1 + 2 * dice.unit())))};
  const int64_t max_tokens = limits.total_blocks * limits.block_tokens / 2;
  for (Nanos at = dice.wait(flex_every); at < length && world.flex.size() < 300;
       at += dice.wait(flex_every)) {
    Request request =
        request_of(std::min(dice.whole(1, flex_prompt * 2), max_tokens),
                   dice.whole(1, flex_output * 2), ServiceClass::kBestEffort, first += 10000);
    if (dice.chance(0.05)) {
      request.n = static_cast<int32_t>(dice.whole(2, world.options.engine.max_running));
    }
    world.flex[++id] = {at, std::move(request)};
  }
  return world;
}

int64_t refused(const FlexWorld& made, bool beside_flex) {
  VirtualWorld world(made.options);
  for (const auto& [id, arrival] : made.sensitive) {
    world.arrive(arrival.first, id, arrival.second);
  }
  for (const auto& [id, arrival] : made.flex) {
    if (beside_flex) {
      world.arrive(arrival.first, id, arrival.second);
    }
  }
  world.run_until_idle();
  return std::ranges::count_if(
      made.sensitive, [&](const auto& entry) { return world.outcome(entry.first).refused(); });
}

TEST(FlexLoad, RefusesFewLatencySensitiveRequestsBelowCapacity) {
  uint64_t first = 1;
  uint64_t last = 40;
  if (const char* range = std::getenv("TANDEM_FLEX_WORLDS"); range != nullptr) {
    char* rest = nullptr;
    first = std::strtoull(range, &rest, 10);
    ASSERT_EQ(*rest, ':') << "TANDEM_FLEX_WORLDS is FIRST:LAST, not " << range;
    last = std::strtoull(rest + 1, nullptr, 10);
  }
  int64_t all = 0;
  int64_t alone = 0;
  int64_t beside = 0;
  int64_t flex = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    const FlexWorld world = random_flex_world(seed);
    const int64_t without = refused(world, false);
    const int64_t with = refused(world, true);
    all += std::ssize(world.sensitive);
    flex += std::ssize(world.flex);
    alone += without;
    beside += with;
    if (std::getenv("TANDEM_FLEX_WORLDS") != nullptr) {
      std::printf("world %llu: of %zu refused %lld alone, %lld beside %zu\n",
                  static_cast<unsigned long long>(seed), world.sensitive.size(),
                  static_cast<long long>(without), static_cast<long long>(with), world.flex.size());
    }
  }
  std::printf(
      "%lld latency-sensitive requests: %lld refused alone, %lld beside %lld of best "
      "effort\n",
      static_cast<long long>(all), static_cast<long long>(alone), static_cast<long long>(beside),
      static_cast<long long>(flex));
  EXPECT_GT(all, 4000);
  EXPECT_LE(alone * 50, all) << "the load is not below capacity";
  EXPECT_LT((beside - alone) * 100, all);
}

}  // namespace
}  // namespace tandem
