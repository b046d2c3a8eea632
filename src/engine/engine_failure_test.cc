// An executor that fails for good at any moment: while a step runs, while copies and hops are under
// way, and with requests in every state.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>

#include "support/two_tier_world.h"

namespace tandem {
namespace {

using testing::ChancePolicy;
using testing::Dice;
using testing::EchoExecutor;
using testing::EchoOptions;
using testing::make_request;
using testing::Outcome;
using testing::Outcomes;
using testing::prompt_of;
using testing::StepSums;
using testing::two_tiers;

// Fails at a time; from then on steps end without results.
class MortalExecutor final : public StepExecutor {
 public:
  MortalExecutor(const EchoOptions& options, const ManualClock& clock, Nanos end)
      : echo_(options, clock), clock_(clock), end_(end) {}
  [[nodiscard]] const ExecutorLimits& limits() const override { return echo_.limits(); }
  [[nodiscard]] const Error* failure() const override {
    return clock_.now() >= end_ ? &failure_ : nullptr;
  }
  void launch(const StepInput& input) override {
    if (failure() == nullptr) {
      echo_.launch(input);
    }
  }
  bool poll(StepResult& result) override {
    if (failure() != nullptr) {
      result = {};
      return true;
    }
    return echo_.poll(result);
  }
  void leave(SequenceId offloaded) override {
    if (failure() == nullptr) {
      echo_.leave(offloaded);
    }
  }
  [[nodiscard]] TierEvents take_tier_events() override { return echo_.take_tier_events(); }
  [[nodiscard]] int32_t next_stage(SequenceId offloaded) const override {
    return echo_.next_stage(offloaded);
  }
  [[nodiscard]] Nanos next_event() const { return std::min(echo_.next_event(), end_); }

 private:
  EchoExecutor echo_;
  const ManualClock& clock_;
  const Nanos end_;
  const Error failure_{ErrorCode::kUnavailable, "the device is lost", ""};
};

EngineInput arrival(int64_t id, std::mt19937_64& random, const std::shared_ptr<Outcomes>& sink) {
  Request request = make_request(prompt_of(1 + static_cast<int>(random() % 20)),
                                 1 + static_cast<int32_t>(random() % 60), random() % 5);
  request.n = 1 + static_cast<int32_t>(random() % 2);
  request.service_class =
      random() % 2 == 0 ? ServiceClass::kBestEffort : ServiceClass::kLatencySensitive;
  request.sink = sink;
  request.sink_tag = static_cast<uint64_t>(id);
  return Engine::make_arrival(RequestId{id}, std::move(request), Nanos{0}, 4);
}

// Of the choices that ended with the failure's reason.
int64_t fail_at(uint64_t seed) {
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  Dice dice;
  dice.seed = seed;
  dice.offload = static_cast<int>(random() % 80);
  dice.anything = true;
  testing::WorldOptions options = two_tiers(dice);
  options.executor.host.max_copy = std::chrono::milliseconds(5);
  options.engine.max_model_len = 100;
  options.engine.max_running = 8;
  ManualClock clock;
  MortalExecutor executor(options.executor, clock, std::chrono::microseconds(random() % 60000));
  ChancePolicy policy(dice);
  StepSums observer;
  const auto sink = std::make_shared<Outcomes>(clock);
  Engine engine(options.engine, {.executor = executor,
                                 .policy = policy,
                                 .clock = clock,
                                 .observer = observer,
                                 .step_times = nullptr,
                                 .admission = nullptr});
  EngineInputs inputs;
  std::vector<int32_t> choices;
  const auto post = [&](int64_t id) {
    inputs.push_back(arrival(id, random, sink));
    choices.push_back(std::get<Arrival>(inputs.back()).request.n);
  };
  for (int64_t id = 0; id < 16; ++id) {
    post(id);
  }
  for (;;) {
    const EngineActivity activity = engine.advance(clock.now(), inputs).activity;
    if (activity == EngineActivity::kFailed) {
      break;
    }
    if (activity == EngineActivity::kIdle) {
      return 0;  // it was done before
    }
    clock.set(std::max(executor.next_event(), clock.now()));
  }
  inputs.push_back(EngineCancel{RequestId{3}});
  post(16);
  engine.end_all("the device is lost", inputs);
  EXPECT_TRUE(inputs.empty());
  post(17);
  inputs.push_back(EngineStop{RequestId{2}, 0});
  engine.end_all("the device is lost", inputs);
  int64_t ended = 0;
  for (size_t id = 0; id < choices.size(); ++id) {
    for (int32_t choice = 0; choice < choices[id]; ++choice) {
      const Outcome& outcome = sink->of(static_cast<int64_t>(id), choice);
      EXPECT_EQ(outcome.finishes, 1) << "request " << id << ", choice " << choice;
      const bool is_error = outcome.reason == FinishReason::kError;
      EXPECT_TRUE(!is_error || outcome.error == "the device is lost") << outcome.error;
      ended += is_error ? 1 : 0;
    }
  }
  EXPECT_EQ(engine.load().waiting, 0);
  return ended;
}

TEST(EngineFailure, EndsEveryChoiceOnceWhateverItWasDoing) {
  int64_t ended = 0;
  for (uint64_t seed = 1; seed <= 400 && !::testing::Test::HasFailure(); ++seed) {
    ended += fail_at(seed);
  }
  EXPECT_GT(ended, 2000);
}

}  // namespace
}  // namespace tandem
