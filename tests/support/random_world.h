// Random worlds in virtual time: the pools, tiers and policy of a server, and the requests that
// arrive there. A world is a function of a policy's name, a seed and `WorldKind`; nothing here says
// what is checked.
//
//   const RandomWorld world = random_world("sarathi", 7);
//   VirtualWorld played(world.options);
//   world.send_to(played);
//   played.run_until_idle();
//   EXPECT_EQ(wrong_in(world, played), "");
//
// To check a property of plans, set `options.watch_policy` before `played` is made: see
// tests/worlds/worlds_test.cc.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "support/virtual_world.h"

namespace tandem::testing {

// The ranges from which a world is drawn. A property that holds only in some worlds narrows them.
struct WorldKind {
  enum class Tiers : uint8_t { kOneOrTwo, kOne, kTwo } tiers = Tiers::kOneOrTwo;
  int64_t min_blocks = 8;
  int64_t max_blocks = 24;
  int32_t min_requests = 10;
  int32_t max_requests = 40;
  int32_t max_choices = 8;
  int32_t max_output = 24;
  Nanos max_span{std::chrono::milliseconds(60)};  // from the first arrival to the last
  bool both_classes = true;                       // else all are latency sensitive
  bool targets = true;                            // some requests have TTFT and TPOT targets
  bool ends = true;                               // some are cancelled or stopped
  bool host_failures = true;
};

struct RandomRequest {
  int64_t id = 0;
  Nanos arrives{0};
  Request request;
  enum class End : uint8_t { kNone, kCancel, kStop } end = End::kNone;
  Nanos ends{0};
  int32_t stopped_choice = 0;
};

struct RandomWorld {
  std::string policy;
  uint64_t seed = 0;
  WorldOptions options;
  std::vector<RandomRequest> requests;

  void send_to(VirtualWorld& world) const {
    for (const RandomRequest& one : requests) {
      world.arrive(one.arrives, one.id, one.request);
      if (one.end == RandomRequest::End::kCancel) {
        world.cancel(one.ends, one.id);
      } else if (one.end == RandomRequest::End::kStop) {
        world.stop(one.ends, one.id, one.stopped_choice);
      }
    }
  }
};

// Draws one world. The same numbers on every machine: no distribution of the standard library.
class WorldMaker {
 public:
  WorldMaker(std::string_view policy, uint64_t seed, const WorldKind& kind) : kind_(kind) {
    world_.policy = policy;
    world_.seed = seed;
    uint64_t mixed = seed;  // worlds of different policies have nothing in common
    for (const char letter : policy) {
      mixed = mixed * 1099511628211ULL + static_cast<uint64_t>(letter);
    }
    random_.seed(mixed);
  }

  RandomWorld make() {
    families_ = one_in(2);
    draw_server();
    draw_host();
    draw_policy();
    draw_prefixes();
    const auto count = between(kind_.min_requests, kind_.max_requests);
    span_ = Nanos{between(0, kind_.max_span.count())};
    for (int64_t id = 1; id <= count; ++id) {
      world_.requests.push_back(families_ ? draw_relative(id) : draw_loner(id));
    }
    draw_beliefs();
    draw_staging();
    return std::move(world_);
  }

 private:
  // Both ends included.
  int64_t between(int64_t min, int64_t max) {
    return min + static_cast<int64_t>(random_() % static_cast<uint64_t>(max - min + 1));
  }
  int32_t between32(int32_t min, int32_t max) { return static_cast<int32_t>(between(min, max)); }
  bool one_in(uint64_t count) { return random_() % count == 0; }
  Nanos micros(int64_t max) { return std::chrono::microseconds(between(0, max)); }

  void draw_server() {
    WorldOptions& options = world_.options;
    options.policy = world_.policy;
    options.audit = WorldOptions::Audit::kEachAdvance;
    ExecutorLimits& limits = options.executor.limits;
    limits.block_tokens = one_in(3) ? between32(1, 8) : 4;
    limits.total_blocks = between(
        kind_.min_blocks, families_ ? (kind_.min_blocks + kind_.max_blocks) / 2 : kind_.max_blocks);
    limits.max_logit_rows = between32(kind_.max_choices, kind_.max_choices + 16);
    limits.max_batched_tokens = families_ ? 64 : between32(4, 64);
    options.engine.max_running = between32(kind_.max_choices, limits.max_logit_rows);
    options.engine.prefix_caching = one_in(6) ? PrefixCaching::kOff : PrefixCaching::kOn;
    options.executor.per_attended = one_in(2) ? Nanos{500} : Nanos{0};
  }

  // What is believed of the host, which may be anything; lanes are planned by it.
  void draw_beliefs() {
    WorldOptions& options = world_.options;
    if (options.executor.limits.host_blocks == 0 || one_in(3)) {
      return;
    }
    options.believed_layers = between32(1, 8);
    latency::HostTimes& host = options.host_times.emplace();
    host.attention.per_context_nanos = static_cast<double>(between(0, one_in(2) ? 200 : 20'000));
    host.attention.per_row_nanos = static_cast<double>(between(0, 5000));
    host.launch.per_group_nanos = static_cast<double>(between(0, 20'000));
    options.policy_options[kNeoCodeTerms] = between32(0, 1);
    if (!world_.policy.starts_with("apex")) {
      return;  // worlds of the others stay as they were
    }
    options.executor.limits.hops_per_token = options.believed_layers;
    options.policy_options[kApexHostRows] = one_in(2) ? between32(0, 8) : 0;
    options.policy_options[kApexRealWindow] = between32(0, 1);
  }

  // Worlds of policies without them stay as they were.
  void draw_staging() {
    ExecutorLimits& limits = world_.options.executor.limits;
    if (limits.host_blocks > 0 && policy_traits(world_.policy).stages_prompts && !one_in(3)) {
      limits.staging_blocks = between32(1, limits.max_batched_tokens / limits.block_tokens + 4);
    }
  }

  void draw_host() {
    const bool host = one_in(2);
    if (kind_.tiers == WorldKind::Tiers::kOne ||
        (kind_.tiers == WorldKind::Tiers::kOneOrTwo && !host)) {
      return;
    }
    WorldOptions& options = world_.options;
    options.executor.limits.host_blocks = one_in(4) ? between(1, 6) : between(1, 60);
    options.executor.limits.offloaded_sequences = between32(1, 12);
    EchoHostOptions& tier = options.executor.host;
    tier.seed = random_();
    tier.max_hops = micros(30000);
    tier.max_copy = micros(8000);
    if (kind_.host_failures && one_in(4)) {
      tier.failures_per_thousand = 30;
      tier.lost_per_thousand = 300;
    }
    options.engine.max_host_failures = 1000;
  }

  void draw_policy() {
    PolicyOptions& options = world_.options.policy_options;
    options[kSarathiTokenBudget] = families_ ? 64 : between32(1, 64);
    options[kPiggybackTokenBudget] = options[kSarathiTokenBudget];
    options[kOffloadBelow] = between32(0, 100);
    options[kOnloadAbove] = between32(options[kOffloadBelow], 100);
    options[kLlumnixHeadroom] = between32(0, 100);
    options[kPatienceSteps] = between32(1, 64);
    options[kMaxHeldSteps] = 3 * options[kPatienceSteps];  // no draw of its own
    const bool admits = one_in(2);
    if (policy_traits(world_.policy).admits && admits) {
      world_.options.admits = WorldOptions::Admits::kYes;
    }
    world_.options.belief_percent = one_in(3) ? between32(30, 300) : 100;
    world_.options.learning =
        one_in(3) ? WorldOptions::Learning::kNo : WorldOptions::Learning::kYes;
    if (policies_that_read(kPsmUtility).find(world_.policy) == std::string::npos) {
      return;  // worlds of the others stay as they were
    }
    options[kHyGenStepBudget] = between32(5'000, 50'000);
    options[kStepBudgetFlexOnly] = options[kHyGenStepBudget] % 2;  // no draw of its own
    options[kFlexBlocks] = between32(1, 100);
    options[kPsmUtility] = one_in(2) ? between32(0, 100) : 0;
    options[kFairTenants] = one_in(3) ? 1 : 0;
  }

  // Beginnings that many prompts have in common, some of them with each other.
  void draw_prefixes() {
    const int64_t count = between(1, 5);
    for (int64_t i = 0; i < count; ++i) {
      std::vector<TokenId> tokens;
      if (!prefixes_.empty() && one_in(2)) {
        tokens = prefixes_.front();
      }
      add_tokens(tokens, between(0, 24));
      prefixes_.push_back(std::move(tokens));
    }
  }

  void add_tokens(std::vector<TokenId>& tokens, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      tokens.push_back(static_cast<TokenId>(between(0, 999)));
    }
  }

  Nanos arrival() { return one_in(4) ? Nanos{0} : Nanos{between(0, span_.count())}; }

  RandomRequest draw_loner(int64_t id) {
    const auto& prefix = prefixes_[static_cast<size_t>(between(0, std::ssize(prefixes_) - 1))];
    return draw_request(id, arrival(), prefix);
  }

  // Families of three that come together: a best-effort request with several choices, a best-effort
  // one, and a latency-sensitive one that begins like the second: it takes over blocks that the
  // second loses when the choices need theirs.
  RandomRequest draw_relative(int64_t id) {
    const int64_t place = (id - 1) % 3;
    if (place == 0) {
      family_.clear();
      add_tokens(family_, between(4, 20));
      family_arrives_ = arrival();
    }
    const std::vector<TokenId> other(place == 0 ? 1 : 0, 7);
    RandomRequest drawn = draw_request(id, family_arrives_ + (place == 2 ? micros(3000) : Nanos{0}),
                                       place == 0 ? other : family_);
    drawn.request.n = place == 0 ? between32((kind_.max_choices + 1) / 2, kind_.max_choices) : 1;
    drawn.stopped_choice = 0;
    drawn.request.service_class = place < 2 && kind_.both_classes ? ServiceClass::kBestEffort
                                                                  : ServiceClass::kLatencySensitive;
    return drawn;
  }

  RandomRequest draw_request(int64_t id, Nanos arrives, const std::vector<TokenId>& prefix) {
    const ExecutorLimits& limits = world_.options.executor.limits;
    const int64_t pool = limits.total_blocks * limits.block_tokens;
    const int64_t whole = std::min(std::ssize(prefix), pool / 2);
    const int64_t shared = one_in(3) ? between(0, whole) : whole;
    std::vector<TokenId> prompt(prefix.begin(), prefix.begin() + shared);
    const int64_t own = one_in(4) && shared > 0 ? 0 : between(1, 8);
    add_tokens(prompt, std::min(own, pool - 1 - shared));
    const auto room =
        static_cast<int32_t>(std::min<int64_t>(kind_.max_output, pool - std::ssize(prompt)));
    RandomRequest drawn;
    drawn.id = id;
    drawn.arrives = arrives;
    drawn.request = make_request(std::move(prompt), between32(1, room), random_() % 5);
    drawn.request.n = one_in(3) ? between32(1, kind_.max_choices) : 1;
    draw_service(drawn.request);
    if (one_in(6)) {
      drawn.request.sampling.prompt_logprobs = between32(0, 2);
    }
    drawn.request.tenant = one_in(8) ? "other" : "";
    drawn.request.explain = one_in(3);
    if (kind_.ends && one_in(5)) {
      drawn.end = one_in(2) ? RandomRequest::End::kCancel : RandomRequest::End::kStop;
      drawn.ends = drawn.arrives + micros(60000);
      drawn.stopped_choice = between32(0, drawn.request.n - 1);
    }
    return drawn;
  }

  void draw_service(Request& request) {
    request.service_class = kind_.both_classes && one_in(2) ? ServiceClass::kBestEffort
                                                            : ServiceClass::kLatencySensitive;
    request.level = one_in(4) ? between32(-2, 2) : 0;
    if (kind_.targets && one_in(3)) {
      request.slo.ttft = TtftRule{.base = std::chrono::milliseconds(between(1, 60))};
    }
    if (kind_.targets && one_in(3)) {
      request.slo.tpot = std::chrono::microseconds(between(500, 8000));
    }
  }

  WorldKind kind_;
  RandomWorld world_;
  std::mt19937_64 random_;
  bool families_ = false;
  Nanos span_{0};
  std::vector<std::vector<TokenId>> prefixes_;
  std::vector<TokenId> family_;
  Nanos family_arrives_{0};
};

inline RandomWorld random_world(std::string_view policy, uint64_t seed,
                                const WorldKind& kind = {}) {
  return WorldMaker(policy, seed, kind).make();
}

// What of a choice is not as it would be on an idle server of one tier; empty: nothing.
inline std::string wrong_in(const RandomRequest& one, int32_t choice, const Outcome& outcome) {
  if (outcome.finishes != 1 || !outcome.error.empty()) {
    return fmt::format("ended {} times, error '{}'", outcome.finishes, outcome.error);
  }
  const Request& request = one.request;
  std::vector<TokenId> expected = expected_tokens(request, choice);
  // Before there are choices a stop of the first one ends them all.
  const bool stopped =
      one.stopped_choice == choice || (one.stopped_choice == 0 && outcome.tokens.empty());
  const bool cut =
      one.end == RandomRequest::End::kCancel || (one.end == RandomRequest::End::kStop && stopped);
  if (cut && outcome.tokens.size() < expected.size()) {
    expected.resize(outcome.tokens.size());
  }
  if (outcome.tokens != expected) {
    return fmt::format("{} tokens instead of {}, or other ones", outcome.tokens.size(),
                       expected.size());
  }
  if (request.sampling.prompt_logprobs < 0 || choice > 0 || outcome.tokens.empty()) {
    return {};
  }
  std::vector<float> scores;  // as the echo executor scores tokens
  for (size_t i = 1; i < request.prompt.size(); ++i) {
    scores.push_back(-static_cast<float>(request.prompt[i]));
  }
  const bool right = outcome.prompt_logprobs.size() == 1 && outcome.prompt_logprobs[0] == scores;
  return right ? "" : "the scores of the prompt are wrong";
}

// The same of the whole world, and what has stayed behind when it is idle.
inline std::string wrong_in(const RandomWorld& world, VirtualWorld& played) {
  for (const RandomRequest& one : world.requests) {
    const bool refused = played.outcome(one.id).refused();
    for (int32_t choice = 0; choice < one.request.n; ++choice) {
      const Outcome& outcome = played.outcome(one.id, choice);
      const std::string wrong = refused ? (outcome.finishes > 0 ? "ended though refused" : "")
                                        : wrong_in(one, choice, outcome);
      if (!wrong.empty()) {
        return fmt::format("request {}, choice {}: {}", one.id, choice, wrong);
      }
    }
  }
  const KvManager& kv = played.engine().kv();
  const int64_t here = kv.total_blocks() - kv.free_blocks();
  const int64_t there = kv.total_blocks(Tier::kHost) - kv.free_blocks(Tier::kHost) -
                        kv.blocks_out_of_use(Tier::kHost);
  const EngineLoad load = played.engine().load();
  if (here != 0 || there != 0 || load.running != 0 || load.waiting != 0 ||
      !played.executor().host().drained()) {
    return fmt::format(
        "the idle server keeps {} and {} KV blocks, {} sequences run and {} wait, {}", here, there,
        load.running, load.waiting,
        played.executor().host().drained() ? "no copy or hop runs" : "a copy or a hop runs");
  }
  return played.put_off() == 0 ? ""
                               : fmt::format("{} parts of plans found no room", played.put_off());
}

}  // namespace tandem::testing
