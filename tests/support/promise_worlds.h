// Random worlds for the guarantees of omniserve and its admission: machines, pools, policies and
// traffic of both classes by chance, each world a function of its seed.
#pragma once

#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "support/guarantee_watch.h"
#include "support/virtual_world.h"

namespace tandem::testing {

struct PromiseWorld {
  WorldOptions options;
  bool model_is_right = true;  // of time, and of what is cached: promises must hold
  std::map<int64_t, std::pair<Nanos, Request>> requests;
  std::vector<std::pair<Nanos, int64_t>> cancels;
};

struct PromiseTally {
  int64_t refused = 0;
  int64_t promised = 0;
  int64_t late = 0;  // promised first tokens after their target, where the model is right
  int64_t slow = 0;  // TPOT, the same
  GuaranteeFindings found;
};

class PromiseDice {
 public:
  explicit PromiseDice(uint64_t seed) : bits_(seed * 0x9E3779B97F4A7C15ULL + 1) {}
  int64_t whole(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(bits_() % static_cast<uint64_t>(high - low + 1));
  }
  bool chance(double of) { return unit() < of; }
  double unit() { return static_cast<double>(bits_() >> 11) * 0x1.0p-53; }
  // Orders of magnitude are alike.
  int64_t spread(int64_t low, int64_t high) {
    return static_cast<int64_t>(
        static_cast<double>(low) *
        std::pow(static_cast<double>(high) / static_cast<double>(low), unit()));
  }
  Nanos wait(Nanos mean) {
    return Nanos{static_cast<int64_t>(-std::log(1 - unit()) * static_cast<double>(mean.count()))};
  }

 private:
  std::mt19937_64 bits_;
};

inline WorldOptions random_machine(PromiseDice& dice) {
  WorldOptions options;
  options.policy = "omniserve";
  const auto places = static_cast<int32_t>(dice.whole(4, 48));
  ExecutorLimits& limits = options.executor.limits;
  limits.block_tokens = 16;
  limits.max_batched_tokens =
      static_cast<int32_t>(dice.chance(0.2) ? dice.whole(places + 8, 128) : dice.spread(112, 1024));
  limits.total_blocks = dice.chance(0.3) ? dice.whole(60, 300) : dice.whole(300, 1500);
  limits.max_logit_rows = places;
  if (dice.chance(0.35)) {
    limits.host_blocks = dice.whole(60, 1200);
    limits.offloaded_sequences = places;
    limits.max_logit_rows += visitor_logit_rows(places);
    options.executor.host.seed = static_cast<uint64_t>(dice.whole(1, 1000));
    options.executor.host.failures_per_thousand = dice.chance(0.2) ? 20 : 0;
  }
  limits.max_batched_tokens = std::max(limits.max_batched_tokens, limits.max_logit_rows);
  options.engine.max_running = places;
  options.executor.context_tokens = 1;
  options.executor.step_fixed = Nanos{dice.spread(300'000, 4'000'000)};
  options.executor.per_token = Nanos{dice.spread(3'000, 100'000)};
  options.executor.per_attended = Nanos{dice.chance(0.2) ? 0 : dice.spread(1, 100)};
  PolicyOptions& policy = options.policy_options;
  policy[kPiggybackTokenBudget] = static_cast<int32_t>(dice.spread(32, 512));
  policy[kOffloadBelow] = static_cast<int32_t>(dice.whole(0, 50));
  policy[kOnloadAbove] = static_cast<int32_t>(dice.whole(policy[kOffloadBelow], 100));
  policy[kPatienceSteps] = static_cast<int32_t>(dice.chance(0.5) ? 64 : dice.spread(2, 64));
  options.admits = dice.chance(0.7) ? WorldOptions::Admits::kYes : WorldOptions::Admits::kNo;
  return options;
}

struct RandomTraffic {
  Nanos step{0};       // of a step with a hundred rows
  double targets = 1;  // share of requests with each kind of target
  bool long_prompts = false;
  bool prefixes = false;
  bool levels = false;
};

inline Request random_request(PromiseDice& dice, const PromiseWorld& world,
                              const RandomTraffic& traffic, bool best_effort, TokenId first) {
  const ExecutorLimits& limits = world.options.executor.limits;
  const int64_t most = limits.total_blocks * limits.block_tokens - 1;
  const bool is_long = dice.chance(best_effort && traffic.long_prompts ? 0.2 : 0.1);
  const int64_t length = is_long
                             ? dice.spread(200, best_effort && traffic.long_prompts ? 6000 : 900)
                             : dice.spread(1, 200);
  const int64_t output = dice.spread(1, best_effort ? 200 : 80);
  std::vector<TokenId> prompt(
      static_cast<size_t>(std::clamp<int64_t>(length, 1, std::max<int64_t>(most - output, 1))));
  std::iota(prompt.begin(), prompt.end(), first);
  if (traffic.prefixes && dice.chance(0.5)) {
    std::iota(prompt.begin(), prompt.end(), 77);
    prompt.back() = first;
  }
  Request request =
      make_request(std::move(prompt),
                   static_cast<int32_t>(std::min(output, std::max<int64_t>(most - length, 1))));
  if (dice.chance(0.1)) {
    request.n = static_cast<int32_t>(
        std::min<int64_t>(dice.whole(2, best_effort ? 48 : 4), world.options.engine.max_running));
  }
  if (traffic.levels && dice.chance(0.3)) {
    request.level = static_cast<int32_t>(dice.whole(-2, 2));
  }
  if (best_effort) {
    request.service_class = ServiceClass::kBestEffort;
    return request;
  }
  if (dice.chance(traffic.targets)) {
    request.slo.ttft = TtftRule{.base = traffic.step * dice.spread(2, 100)};
  }
  if (dice.chance(traffic.targets)) {
    request.slo.tpot = Nanos{dice.spread(traffic.step.count() / 2, traffic.step.count() * 10)};
  }
  return request;
}

inline PromiseWorld random_promise_world(uint64_t seed) {
  PromiseDice dice(seed);
  PromiseWorld world;
  world.options = random_machine(dice);
  if (dice.chance(0.2)) {
    world.model_is_right = false;
    world.options.belief_percent = static_cast<int32_t>(dice.whole(40, 200));
    world.options.learning =
        dice.chance(0.5) ? WorldOptions::Learning::kYes : WorldOptions::Learning::kNo;
  }
  RandomTraffic traffic;
  traffic.step = world.options.executor.step_fixed + world.options.executor.per_token * 100;
  traffic.targets = dice.chance(0.6) ? 1 : dice.unit();
  traffic.long_prompts = dice.chance(0.3);
  traffic.prefixes = dice.chance(0.2);
  // A cached prefix that counted as computed may be gone when its turn comes: no fault of promises.
  world.model_is_right = world.model_is_right && !traffic.prefixes;
  traffic.levels = dice.chance(0.3);
  const Nanos length = traffic.step * dice.whole(100, 500);
  const double burst = dice.chance(0.5) ? 0.2 : 0;
  const bool cancels = dice.chance(0.2);
  int64_t id = 0;
  TokenId first = 0;
  for (const bool best_effort : {false, true}) {
    const Nanos every = traffic.step * dice.spread(1, 50);
    for (Nanos at = dice.wait(every); at < length && world.requests.size() < 600;
         at += dice.wait(every)) {
      const int64_t crowd = dice.chance(burst) ? dice.whole(2, 8) : 1;
      for (int64_t i = 0; i < crowd; ++i) {
        Request request = random_request(dice, world, traffic, best_effort, first += 10000);
        world.requests[++id] = {at, std::move(request)};
        if (cancels && dice.chance(0.2)) {
          world.cancels.emplace_back(at + traffic.step * dice.whole(0, 50), id);
        }
      }
    }
  }
  return world;
}

inline bool is_slow(VirtualWorld& world, int64_t id, const Request& request) {
  for (int32_t choice = 0; choice < request.n; ++choice) {
    const Outcome& one = world.outcome(id, choice);
    const int64_t gaps = std::ssize(one.times) - 1;
    if (gaps > 0 && (one.times.back() - one.times.front()) / gaps > *request.slo.tpot) {
      return true;
    }
  }
  return false;
}

inline PromiseTally run_promise_world(PromiseWorld made) {
  PromiseTally tally;
  const int32_t patience = made.options.policy_options[kPatienceSteps];
  made.options.watch_policy = [&](StepPolicy& inner) {
    return std::make_unique<PolicyWatch>(inner, patience, tally.found);
  };
  made.options.watch_admission = [&](Admission& inner) {
    return std::make_unique<AdmissionWatch>(inner, tally.found);
  };
  VirtualWorld world(made.options);
  for (const auto& [id, arrival] : made.requests) {
    world.arrive(arrival.first, id, arrival.second);
  }
  std::set<int64_t> cancelled;
  for (const auto& [at, id] : made.cancels) {
    world.cancel(at, id);
    cancelled.insert(id);
  }
  world.run_until_idle();
  for (const auto& [id, arrival] : made.requests) {
    const auto& [at, request] = arrival;
    const Outcome& outcome = world.outcome(id);
    if (outcome.refused()) {
      ++tally.refused;
      continue;
    }
    if (outcome.finishes != 1) {
      tally.found.note("request {} ends {} times", id, outcome.finishes);
    }
    const bool is_promised =
        outcome.verdict.has_value() && outcome.verdict->answer == AdmissionAnswer::kAccept;
    if (!is_promised || outcome.times.empty()) {
      continue;
    }
    ++tally.promised;
    if (!made.model_is_right) {
      continue;
    }
    if (request.slo.ttft && outcome.times.front() - at > request.slo.ttft->base) {
      ++tally.late;
      tally.found.note("promise {}: the first token comes after {} us, the target is {} us", id,
                       (outcome.times.front() - at).count() / 1000,
                       request.slo.ttft->base.count() / 1000);
    }
    tally.slow += request.slo.tpot && !cancelled.contains(id) && is_slow(world, id, request);
  }
  return tally;
}

}  // namespace tandem::testing
