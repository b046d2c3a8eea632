// Stories in virtual time as text: the files of cases/, whose format README.md describes. Their
// requests are brought to a world, and their expectations are compared with its answers.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "support/virtual_world.h"

namespace tandem::testing {

// The NAME=VALUE of a line.
class Fields {
 public:
  [[nodiscard]] bool contains(const std::string& name) const {
    read_.insert(name);
    return values_.contains(name);
  }
  [[nodiscard]] const std::string& at(const std::string& name) const {
    read_.insert(name);
    return values_.at(name);
  }
  void set(const std::string& name, std::string value) { values_[name] = std::move(value); }
  // Names that none of the functions above was asked for: mistakes in the line.
  [[nodiscard]] std::string unread() const {
    std::string names;
    for (const auto& [name, value] : values_) {
      names += read_.contains(name) ? "" : " " + name;
    }
    return names;
  }

 private:
  std::map<std::string, std::string> values_;
  mutable std::set<std::string> read_;
};

// The worlds in which stories happen.
enum class Machine : uint8_t { kEcho, kSimulated };

struct Expectation {
  std::string text;
  std::string policy;              // empty: all
  std::optional<Machine> machine;  // nullopt: all
  std::string subject;
  std::string op;
  std::string value;
};

struct Scenario {
  WorldOptions world;
  struct Arrival {
    Nanos at;
    Request request;
  };
  std::map<int64_t, Arrival> requests;
  std::vector<std::pair<Nanos, int64_t>> cancels;
  struct Stop {
    Nanos at;
    int64_t id;
    int32_t choice;
  };
  std::vector<Stop> stops;
  std::vector<Expectation> expectations;
};

inline Fields fields_of(std::istringstream& words) {
  Fields fields;
  std::string word;
  while (words >> word) {
    const size_t equals = word.find('=');
    fields.set(word.substr(0, equals), equals == std::string::npos ? "" : word.substr(equals + 1));
  }
  return fields;
}

inline int64_t number(const Fields& fields, const std::string& name, int64_t otherwise) {
  return fields.contains(name) ? std::stoll(fields.at(name)) : otherwise;
}

inline Nanos duration(const Fields& fields, const std::string& name) {
  return *parse_duration(fields.at(name));
}

inline void read_world(const Fields& fields, WorldOptions& world) {
  world.executor.limits.total_blocks = number(fields, "blocks", 32);
  world.executor.limits.block_tokens = static_cast<int32_t>(number(fields, "block", 4));
  world.executor.limits.max_batched_tokens = static_cast<int32_t>(number(fields, "tokens", 64));
  world.engine.max_running = static_cast<int32_t>(number(fields, "running", 8));
  world.policy_options[kSarathiTokenBudget] = static_cast<int32_t>(number(fields, "budget", 64));
  world.policy_options[kPiggybackTokenBudget] = world.policy_options[kSarathiTokenBudget];
  world.policy_options[kOffloadBelow] = static_cast<int32_t>(number(fields, "offload_below", 25));
  world.policy_options[kOnloadAbove] = static_cast<int32_t>(number(fields, "onload_above", 50));
  world.executor.limits.host_blocks = number(fields, "host", 0);
  world.executor.limits.offloaded_sequences = static_cast<int32_t>(number(fields, "places", 16));
  world.executor.limits.staging_blocks = static_cast<int32_t>(number(fields, "staging", 0));
  world.executor.host.failures_per_thousand = static_cast<int>(number(fields, "failures", 0));
  if (fields.contains("hops")) {
    world.executor.host.max_hops = duration(fields, "hops");
  }
  world.audit = WorldOptions::Audit::kEachAdvance;
  world.executor.step_fixed = duration(fields, "fixed");
  world.executor.per_token = duration(fields, "per_token");
  world.executor.per_attended = Nanos{number(fields, "per_attended_ns", 0)};
  world.policy_options[kPatienceSteps] = static_cast<int32_t>(number(fields, "patience", 64));
  world.policy_options[kMaxHeldSteps] =
      static_cast<int32_t>(number(fields, "max_held", kMaxHeldPlans));
  world.belief_percent = static_cast<int32_t>(number(fields, "belief", 100));
  world.learning =
      number(fields, "learns", 1) == 1 ? WorldOptions::Learning::kYes : WorldOptions::Learning::kNo;
  if (fields.contains("host_attended_ns")) {
    world.host_times = latency::HostTimes{.attention = {.per_context_nanos = static_cast<double>(
                                                            number(fields, "host_attended_ns", 0))},
                                          .to_host = {},
                                          .from_host = {},
                                          .launch = {}};
    world.policy_options[kHostLimitSteps] =
        static_cast<int32_t>(number(fields, "host_limit_steps", 8));
  }
  world.believed_layers = static_cast<int32_t>(number(fields, "layers", world.believed_layers));
  world.policy_options[kNeoCodeTerms] = static_cast<int32_t>(number(fields, "code_terms", 1));
  world.policy_options[kApexHostRows] = static_cast<int32_t>(number(fields, "host_rows", 0));
  world.policy_options[kApexRealWindow] = static_cast<int32_t>(number(fields, "real_window", 0));
  world.executor.limits.hops_per_token = static_cast<int32_t>(number(fields, "layers", 0));
  world.policy_options[kHyGenStepBudget] =
      static_cast<int32_t>(number(fields, "step_budget_us", 50'000));
  world.policy_options[kStepBudgetFlexOnly] = static_cast<int32_t>(number(fields, "flex_only", 0));
  world.policy_options[kFlexBlocks] = static_cast<int32_t>(number(fields, "flex_blocks", 100));
  world.policy_options[kPsmUtility] = static_cast<int32_t>(number(fields, "psm", 0));
  world.policy_options[kDeadlineFirst] = static_cast<int32_t>(number(fields, "deadline_first", 0));
  world.policy_options[kFairTenants] = static_cast<int32_t>(number(fields, "fair_tenants", 0));
  world.admits =
      number(fields, "admission", 0) == 1 ? WorldOptions::Admits::kYes : WorldOptions::Admits::kNo;
}

inline Request read_request(int64_t id, const Fields& fields) {
  std::vector<TokenId> prompt(static_cast<size_t>(number(fields, "prompt", 1)));
  std::iota(prompt.begin(), prompt.end(), static_cast<TokenId>(number(fields, "first", 10)));
  Request request =
      make_request(std::move(prompt), static_cast<int32_t>(number(fields, "output", 1)),
                   static_cast<uint64_t>(id));
  request.n = static_cast<int32_t>(number(fields, "n", 1));
  if (fields.contains("class") && fields.at("class") == "be") {
    request.service_class = ServiceClass::kBestEffort;
  }
  request.level = static_cast<int32_t>(number(fields, "level", 0));
  request.explain = true;
  if (fields.contains("tenant")) {
    request.tenant = fields.at("tenant");
  }
  if (fields.contains("ttft")) {
    request.slo.ttft = *parse_ttft_rule(fields.at("ttft"));
  }
  if (fields.contains("tpot")) {
    request.slo.tpot = *parse_target(fields.at("tpot"));
  }
  return request;
}

inline Expectation read_expectation(const std::string& line, std::istringstream& words) {
  Expectation expectation;
  expectation.text = line;
  while (words >> expectation.subject && expectation.subject.front() == '[') {
    const std::string only = expectation.subject.substr(1, expectation.subject.size() - 2);
    if (only == "echo" || only == "simulated") {
      expectation.machine = only == "echo" ? Machine::kEcho : Machine::kSimulated;
    } else {
      expectation.policy = only;
      EXPECT_THAT(policy_names(), ::testing::Contains(only)) << line;
    }
  }
  words >> expectation.op >> expectation.value;
  EXPECT_THAT(expectation.op, ::testing::AnyOf("=", "<=", ">=")) << line;
  return expectation;
}

inline Scenario read_scenario(const std::filesystem::path& path) {
  Scenario scenario;
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string kind;
    if (!(words >> kind) || kind == "#") {
      continue;
    }
    int64_t id = 0;
    int32_t choice = 0;
    if (kind == "world") {
      const Fields fields = fields_of(words);
      read_world(fields, scenario.world);
      EXPECT_EQ(fields.unread(), "") << path << ": '" << line << "'";
    } else if (kind == "request" && words >> id) {
      Fields fields = fields_of(words);
      const int64_t first = number(fields, "first", 10);
      const int64_t count = number(fields, "count", 1);
      const Nanos every = fields.contains("every") ? duration(fields, "every") : Nanos{0};
      for (int64_t i = 0; i < count; ++i) {
        fields.set("first", std::to_string(first + i * number(fields, "prompt", 1)));
        scenario.requests[id + i] = {duration(fields, "at") + every * i,
                                     read_request(id + i, fields)};
      }
      EXPECT_EQ(fields.unread(), "") << path << ": '" << line << "'";
    } else if (kind == "cancel" && words >> id) {
      scenario.cancels.emplace_back(duration(fields_of(words), "at"), id);
    } else if (kind == "stop" && words >> id >> choice) {
      scenario.stops.push_back({duration(fields_of(words), "at"), id, choice});
    } else if (kind == "expect") {
      scenario.expectations.push_back(read_expectation(line, words));
    } else {
      ADD_FAILURE() << path << ": cannot read '" << line << "'";
    }
  }
  return scenario;
}

// Brings all events of the story to the world, and runs it until it is idle.
template <class World>
void run(const Scenario& scenario, World& world) {
  for (const auto& [id, arrival] : scenario.requests) {
    world.arrive(arrival.at, id, arrival.request);
  }
  for (const auto& [at, id] : scenario.cancels) {
    world.cancel(at, id);
  }
  for (const Scenario::Stop& stop : scenario.stops) {
    world.stop(stop.at, stop.id, stop.choice);
  }
  world.run_until_idle();
}

// Subjects that are times are compared in nanoseconds.
template <class World>
int64_t measured(const std::string& subject, const Scenario& scenario, World& world) {
  if (subject == "let_in") {
    return world.let_in();
  }
  if (subject == "straight") {
    return world.straight();
  }
  if (subject == "lane_moves") {
    return world.lane_moves();
  }
  if (subject == "mode_changes") {
    return world.mode_changes();
  }
  if (subject == "preemptions") {
    return world.preemptions();
  }
  if (subject == "steps") {
    return world.steps();
  }
  if (subject == "offloaded") {
    return world.offloaded();
  }
  if (subject == "transfers") {
    return world.transfers();
  }
  const size_t dot = subject.find('.');
  const int64_t id = std::stoll(subject.substr(0, dot));
  const std::string field = subject.substr(dot + 1);
  const Outcome& outcome = world.outcome(id);
  const Nanos arrived = scenario.requests.at(id).at;
  if (field == "refused") {
    return outcome.refused() ? 1 : 0;
  }
  if (field == "tokens") {
    return static_cast<int64_t>(outcome.tokens.size());
  }
  if (field == "cached") {
    return outcome.cached_tokens;
  }
  if (field == "hosted") {
    return outcome.report->host_tokens;
  }
  if (outcome.times.empty()) {
    ADD_FAILURE() << "request " << id << " got no token";
    return 0;
  }
  if (field == "first") {
    return (outcome.times.front() - arrived).count();
  }
  if (field == "end") {
    return (outcome.times.back() - arrived).count();
  }
  if (field == "tpot") {
    return (outcome.times.back() - outcome.times.front()).count() /
           std::max<int64_t>(std::ssize(outcome.times) - 1, 1);
  }
  Nanos gap{0};
  for (size_t i = 1; i < outcome.times.size(); ++i) {
    gap = std::max(gap, outcome.times[i] - outcome.times[i - 1]);
  }
  EXPECT_EQ(field, "gap") << "unknown subject " << subject;
  return gap.count();
}

inline void check(const Expectation& expectation, int64_t is) {
  const bool is_time = !std::isdigit(static_cast<unsigned char>(expectation.value.back()));
  const int64_t wanted =
      is_time ? parse_duration(expectation.value)->count() : std::stoll(expectation.value);
  const bool holds = expectation.op == "="    ? is == wanted
                     : expectation.op == "<=" ? is <= wanted
                                              : is >= wanted;
  EXPECT_TRUE(holds) << expectation.text << ", but it is " << is;
}

// Whether each choice ended once with all of its tokens, or with fewer where a client ended it, and
// everything that was held is free. `same_tokens(expected, tokens)` compares two texts.
template <class World, class SameTokens>
void check_answers(const Scenario& scenario, World& world, const SameTokens& same_tokens) {
  std::set<std::pair<int64_t, int32_t>> cut;
  for (const auto& [at, id] : scenario.cancels) {
    for (int32_t choice = 0; choice < scenario.requests.at(id).request.n; ++choice) {
      cut.emplace(id, choice);
    }
  }
  for (const Scenario::Stop& stop : scenario.stops) {
    cut.emplace(stop.id, stop.choice);
  }
  for (const auto& [id, arrival] : scenario.requests) {
    for (int32_t choice = 0; choice < arrival.request.n; ++choice) {
      const Outcome& outcome = world.outcome(id, choice);
      if (world.outcome(id).refused()) {
        EXPECT_EQ(outcome.finishes, 0) << "request " << id << " was refused";
        continue;
      }
      std::vector<TokenId> expected = expected_tokens(arrival.request, choice);
      if (cut.contains({id, choice})) {
        expected.resize(std::min(expected.size(), outcome.tokens.size()));
      }
      EXPECT_TRUE(same_tokens(expected, outcome.tokens))
          << "request " << id << " choice " << choice << ": " << outcome.tokens.size()
          << " tokens, expected " << expected.size();
      EXPECT_EQ(outcome.finishes, 1) << "request " << id << " choice " << choice;
    }
  }
  const KvManager& kv = world.engine().kv();
  EXPECT_EQ(kv.free_blocks(), kv.total_blocks());
  EXPECT_EQ(kv.free_blocks(Tier::kHost), kv.total_blocks(Tier::kHost));
  EXPECT_TRUE(world.drained());
}

inline Scenario read_case(const std::string& name) {
  return read_scenario(std::filesystem::path(SCENARIO_CASES) / (name + ".txt"));
}

// The scenario's world has its policy.
template <class World>
void check_expectations(const Scenario& scenario, Machine machine, World& world) {
  for (const Expectation& expectation : scenario.expectations) {
    if ((expectation.policy.empty() || expectation.policy == scenario.world.policy) &&
        expectation.machine.value_or(machine) == machine) {
      check(expectation, measured(expectation.subject, scenario, world));
    }
  }
}

inline std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(SCENARIO_CASES)) {
    names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

inline std::vector<std::string> policies() {
  std::vector<std::string> names;
  for (const std::string_view name : policy_names()) {
    names.emplace_back(name);
  }
  return names;
}

// Of a test with the parameters (case, policy).
struct CaseName {
  template <class Test>
  std::string operator()(const Test& test) const {
    return std::get<0>(test.param) + "_" + std::get<1>(test.param);
  }
};

}  // namespace tandem::testing
