#include "node/engine_thread.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>

#include "latency/corrected_model.h"
#include "latency/modular_model.h"
#include "scheduler/policies/piggyback.h"
#include "scheduler/policies/registry.h"
#include "support/echo_executor.h"
#include "support/virtual_world.h"

namespace tandem {
namespace {

using testing::EchoExecutor;
using testing::EchoOptions;
using testing::expected_tokens;
using testing::make_request;

// Collects answers and lets a test wait for them.
class Collector final : public TokenSink {
 public:
  void deliver(std::vector<TokenEvent> events) override {
    const std::lock_guard lock(mutex_);
    for (TokenEvent& event : events) {
      if (event.kind == TokenEvent::Kind::kToken) {
        tokens_[event.tag].push_back(event.token);
      } else {
        reasons_[event.tag] = event.finish->reason;
        ++finished_;
      }
    }
    wake_.notify_all();
  }
  void wait_for(int finished) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return finished_ >= finished; });
  }
  std::vector<TokenId> tokens(uint64_t tag) {
    const std::lock_guard lock(mutex_);
    return tokens_[tag];
  }
  FinishReason reason(uint64_t tag) {
    const std::lock_guard lock(mutex_);
    return reasons_[tag];
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<uint64_t, std::vector<TokenId>> tokens_;
  std::map<uint64_t, FinishReason> reasons_;
  int finished_ = 0;
};

// Completes every step at once, on the launching thread; may fail for good at one of them.
class ImmediateExecutor final : public StepExecutor {
 public:
  ImmediateExecutor(const EchoOptions& options, std::function<void()> on_step)
      : echo_(options, clock_), on_step_(std::move(on_step)) {}
  [[nodiscard]] const ExecutorLimits& limits() const override { return echo_.limits(); }
  void fail_at_step(int64_t step) { fails_at_ = step; }
  void launch(const StepInput& input) override {
    if (input.step == fails_at_) {
      failed_ = true;
      on_step_();
      return;
    }
    echo_.launch(input);
    clock_.set(echo_.ready_at());
    on_step_();
  }
  bool poll(StepResult& result) override {
    if (failed_) {
      result = {};
      return true;
    }
    return echo_.poll(result);
  }
  [[nodiscard]] const Error* failure() const override { return failed_ ? &failure_ : nullptr; }
  void leave(SequenceId offloaded) override {
    if (failed_) {
      return;
    }
    echo_.leave(offloaded);
    on_step_();  // it is answered, and nothing else may call the engine
  }
  // What the tiers have under way is done by the next time that the thread looks.
  TierEvents take_tier_events() override {
    TierEvents events = echo_.take_tier_events();
    if (echo_.host().next_event().has_value()) {
      clock_.set(std::max(clock_.now(), *echo_.host().next_event()));
      on_step_();
    }
    return events;
  }

 private:
  const Error failure_{ErrorCode::kUnavailable, "the device is lost; replace it", ""};
  int64_t fails_at_ = -1;
  bool failed_ = false;
  ManualClock clock_;
  EchoExecutor echo_;
  std::function<void()> on_step_;
};

PolicyOptions always_on_the_host() {
  PolicyOptions options;
  options[kOffloadBelow] = 100;
  options[kOnloadAbove] = 100;
  return options;
}

struct Fixture {
  explicit Fixture(int64_t max_queue = 64, const EchoOptions& echo = {},
                   std::string_view policy_name = "accel_only", int64_t max_queue_flex = 64)
      : thread({.names = {"m"}, .max_model_len = 128, .vocabulary = 1000, .max_choices = 4},
               {.max_queue = max_queue, .max_queue_flex = max_queue_flex, .block_tokens = 4}, clock,
               [this](const std::string& reason) { rejected = reason; }),
        executor(echo, [this] { thread.step_completed(); }),
        policy(make_policy(policy_name, always_on_the_host(), {}).value()) {}

  ~Fixture() { thread.shutdown(); }

  void start() {
    thread.start(std::make_unique<Engine>(
        EngineConfig{.max_running = 8, .max_model_len = 128},
        EngineParts{.executor = executor, .policy = *policy.step, .clock = clock}));
  }
  Request request(uint64_t tag, int32_t tokens) {
    std::vector<TokenId> prompt(10);
    std::iota(prompt.begin(), prompt.end(), static_cast<TokenId>(tag));
    Request one = make_request(std::move(prompt), tokens, tag);
    one.sink = sink;
    one.sink_tag = tag;
    return one;
  }

  SteadyClock clock;
  std::string rejected;
  EngineThread thread;
  ImmediateExecutor executor;
  PolicyParts policy;
  std::shared_ptr<Collector> sink = std::make_shared<Collector>();
};

TEST(EngineThread, AnswersRequestsFromManyThreads) {
  auto fixture = std::make_unique<Fixture>();
  fixture->start();
  std::vector<std::thread> clients;
  for (uint64_t client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      for (uint64_t i = 0; i < 10; ++i) {
        ASSERT_TRUE(fixture->thread.submit(fixture->request(client * 10 + i, 6)).ok());
      }
    });
  }
  for (std::thread& client : clients) {
    client.join();
  }
  fixture->sink->wait_for(40);
  for (uint64_t tag = 0; tag < 40; ++tag) {
    EXPECT_EQ(fixture->sink->tokens(tag), expected_tokens(fixture->request(tag, 6), 0));
  }
  fixture->thread.drain();
}

EchoOptions two_tiers() {
  EchoOptions options;
  options.limits.host_blocks = 200;
  options.limits.offloaded_sequences = 8;
  return options;
}

TEST(EngineThread, SleepsAndWakesForWhatHappensBetweenTheTiers) {
  Fixture fixture(64, two_tiers(), "piggyback");
  fixture.start();
  for (uint64_t tag = 0; tag < 12; ++tag) {
    Request request = fixture.request(tag, 20);
    request.service_class = ServiceClass::kBestEffort;
    ASSERT_TRUE(fixture.thread.submit(std::move(request)).ok());
  }
  fixture.sink->wait_for(12);
  for (uint64_t tag = 0; tag < 12; ++tag) {
    EXPECT_EQ(fixture.sink->tokens(tag), expected_tokens(fixture.request(tag, 20), 0));
  }
}

TEST(EngineThread, DestructionCancelsOffloadedSequencesToo) {
  auto fixture = std::make_unique<Fixture>(64, two_tiers(), "piggyback");
  fixture->start();
  const std::shared_ptr<Collector> sink = fixture->sink;
  for (uint64_t tag = 1; tag <= 8; ++tag) {
    Request request = fixture->request(tag, 100);
    request.service_class = ServiceClass::kBestEffort;
    ASSERT_TRUE(fixture->thread.submit(std::move(request)).ok());
  }
  fixture.reset();
  sink->wait_for(8);
}

// Looks at the front end while it hears of the ends.
class EndsOfAFailure final : public TokenSink {
 public:
  explicit EndsOfAFailure(const EngineThread& thread) : thread_(thread) {}
  void deliver(std::vector<TokenEvent> events) override {
    const std::lock_guard lock(mutex_);
    for (const TokenEvent& event : events) {
      if (event.kind == TokenEvent::Kind::kFinish) {
        ++ended_[event.tag];
        if (event.finish->reason == FinishReason::kError) {
          EXPECT_EQ(event.finish->error, "the device is lost; replace it");
          EXPECT_EQ(thread_.state(), ServingState::kFailed);
          ++failed_;
        }
      }
    }
    wake_.notify_all();
  }
  // The number of requests that failed.
  int wait_for_all(size_t requests) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return ended_.size() == requests; });
    for (const auto& [tag, ends] : ended_) {
      EXPECT_EQ(ends, 1) << tag;
    }
    return failed_;
  }

 private:
  const EngineThread& thread_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<uint64_t, int> ended_;
  int failed_ = 0;
};

TEST(EngineThread, AFailedExecutorEndsEveryRequestOnceWithItsReason) {
  for (const std::string_view policy : {"accel_only", "piggyback"}) {
    for (int64_t step = 1; step <= 30; ++step) {
      SCOPED_TRACE(fmt::format("{} at step {}", policy, step));
      Fixture fixture(64, policy == "piggyback" ? two_tiers() : EchoOptions{}, policy);
      fixture.executor.fail_at_step(step);
      std::atomic<int> told{0};
      fixture.thread.set_failure_listener([&] { ++told; });
      const auto sink = std::make_shared<EndsOfAFailure>(fixture.thread);
      fixture.start();
      size_t accepted = 0;
      for (uint64_t tag = 0; tag < 12; ++tag) {
        Request request = fixture.request(tag, 60);
        request.sink = sink;
        request.service_class =
            tag % 2 == 0 ? ServiceClass::kBestEffort : ServiceClass::kLatencySensitive;
        const Submission submitted = fixture.thread.submit(std::move(request));
        accepted += submitted.ok() ? 1 : 0;
      }
      ASSERT_GT(sink->wait_for_all(accepted), 0);
      while (told == 0) {
        std::this_thread::yield();
      }
      EXPECT_EQ(fixture.thread.state(), ServingState::kFailed);
      EXPECT_EQ(fixture.thread.failure(), "the device is lost; replace it");
      EXPECT_TRUE(fixture.thread.idle());
      const Submission refused = fixture.thread.submit(fixture.request(99, 4));
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
      EXPECT_EQ(refused.error().message, "the engine has failed: the device is lost; replace it");
      fixture.thread.cancel(RequestId{1});
      fixture.thread.drain();
      EXPECT_EQ(fixture.thread.state(), ServingState::kFailed) << "a failure stays one";
      fixture.thread.shutdown();
      EXPECT_EQ(told, 1);
    }
  }
}

TEST(EngineThread, RefusesWhileLoadingAndWhileDraining) {
  Fixture fixture;
  EXPECT_EQ(fixture.thread.submit(fixture.request(1, 4)).error().code, ErrorCode::kUnavailable);
  fixture.start();
  EXPECT_EQ(fixture.thread.state(), ServingState::kReady);
  fixture.thread.drain();
  EXPECT_EQ(fixture.thread.submit(fixture.request(1, 4)).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(fixture.rejected, "draining");
}

TEST(EngineThread, AFloodOfBestEffortRefusesNoLatencySensitiveRequest) {
  for (const std::string_view policy : {"accel_only", "sarathi"}) {
    Fixture fixture(1, {}, policy, 0);
    fixture.start();
    Request flex = fixture.request(1, 4);
    flex.service_class = ServiceClass::kBestEffort;
    const auto refused = fixture.thread.submit(std::move(flex));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kOverloaded);
    EXPECT_NE(refused.error().message.find("--max-queue-flex"), std::string::npos);
    EXPECT_EQ(fixture.rejected, "queue_full");
    ASSERT_TRUE(fixture.thread.submit(fixture.request(2, 4)).ok());
    fixture.sink->wait_for(1);
  }
}

TEST(EngineThread, AFloodOfLatencySensitiveRequestsRefusesNoBestEffort) {
  Fixture fixture(0, {}, "sarathi", 1);
  fixture.start();
  EXPECT_FALSE(fixture.thread.submit(fixture.request(1, 4)).ok());
  Request flex = fixture.request(2, 4);
  flex.service_class = ServiceClass::kBestEffort;
  ASSERT_TRUE(fixture.thread.submit(std::move(flex)).ok());
  fixture.sink->wait_for(1);
}

TEST(EngineThread, AFullQueueRefusesWithAReason) {
  Fixture fixture(0);
  fixture.start();
  const auto refused = fixture.thread.submit(fixture.request(1, 4));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOverloaded);
  EXPECT_EQ(fixture.rejected, "queue_full");
}

TEST(EngineThread, TheQueueTakesAllPromptsOfABodyOrNone) {
  for (const ServiceClass service_class :
       {ServiceClass::kLatencySensitive, ServiceClass::kBestEffort}) {
    Fixture fixture(4, {}, "sarathi", 4);
    fixture.start();
    const auto submit = [&](uint64_t tag, int32_t followers) {
      Request request = fixture.request(tag, 4);
      request.service_class = service_class;
      request.followers = followers;
      return fixture.thread.submit(std::move(request));
    };
    const auto never = submit(1, 4);
    ASSERT_FALSE(never.ok());
    EXPECT_EQ(never.error().code, ErrorCode::kInvalidArgument) << "trying again would not help";
    EXPECT_NE(never.error().message.find("5 prompts, and the queue takes 4"), std::string::npos);
    EXPECT_EQ(fixture.rejected, "");
    ASSERT_TRUE(submit(2, 3).ok()) << "the others follow at once";
    fixture.sink->wait_for(1);
  }
}

// With an admission: the policy's, over a model of time in which nothing takes long.
struct GuardedFixture : Fixture {
  GuardedFixture()
      : Fixture(1024),
        times(std::make_unique<latency::ModularModel>(
            latency::simple_model({.layers = 1, .fixed = Nanos{1000}, .per_row = Nanos{100}}))) {
    policy = make_policy("omniserve", {}, {.step_times = &times}).value();
  }
  ~GuardedFixture() { thread.shutdown(); }
  void start() {
    thread.start(std::make_unique<Engine>(EngineConfig{.max_running = 8, .max_model_len = 128},
                                          EngineParts{.executor = executor,
                                                      .policy = *policy.step,
                                                      .clock = clock,
                                                      .step_times = &times,
                                                      .admission = policy.admission.get()}));
  }
  Request with_target(uint64_t tag, Nanos ttft) {
    Request one = request(tag, 6);
    one.slo.ttft = TtftRule{.base = ttft};
    return one;
  }
  latency::CorrectedModel times;
};

TEST(EngineThread, AsksAdmissionBeforeItAnswersWhoeverCalls) {
  auto fixture = std::make_unique<GuardedFixture>();
  fixture->start();
  std::atomic<int> accepted = 0;
  std::vector<std::thread> clients;
  for (uint64_t client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      for (uint64_t i = 0; i < 50; ++i) {
        const uint64_t tag = client * 50 + i;
        Request request = fixture->with_target(tag, i % 2 == 0 ? Nanos{1} : std::chrono::hours(1));
        request.service_class =
            i % 5 == 0 ? ServiceClass::kBestEffort : ServiceClass::kLatencySensitive;
        const bool possible = i % 2 == 1 || request.service_class == ServiceClass::kBestEffort;
        const Submission submitted = fixture->thread.submit(std::move(request));
        accepted += submitted.ok() ? 1 : 0;
        if (!possible) {
          ASSERT_FALSE(submitted.ok());
          EXPECT_EQ(submitted.refusal().reason, "slo_ttft_impossible");
          EXPECT_EQ(submitted.refusal().retry, Refusal::Retry::kUseless);
          EXPECT_EQ(submitted.refusal().ttft_target, Nanos{1});
          EXPECT_GT(submitted.refusal().ttft, Nanos{1});
        } else if (!submitted.ok()) {  // there are places and blocks for a few
          EXPECT_TRUE(submitted.refusal().reason.ends_with("_capacity"));
          EXPECT_TRUE(submitted.refusal().retry_after.has_value());
        }
      }
    });
  }
  for (std::thread& client : clients) {
    client.join();
  }
  EXPECT_GE(accepted, 40);
  fixture->sink->wait_for(accepted);
}

TEST(EngineThread, AsksNobodyWhileItShutsDown) {
  auto fixture = std::make_unique<GuardedFixture>();
  fixture->start();
  std::thread client([&] {
    for (uint64_t tag = 0; tag < 200; ++tag) {
      (void)fixture->thread.submit(fixture->with_target(tag, std::chrono::hours(1)));
    }
  });
  fixture->thread.shutdown();
  client.join();
  EXPECT_FALSE(fixture->thread.submit(fixture->with_target(1, std::chrono::hours(1))).ok());
}

TEST(EngineThread, RefusesWhatDoesNotFitTheModelAndSaysTheNumbers) {
  Fixture fixture;
  fixture.start();
  EXPECT_NE(fixture.thread.submit(fixture.request(1, 119)).error().message.find("128"),
            std::string::npos);
  Request foreign = fixture.request(1, 4);
  foreign.prompt[3] = 1000;
  EXPECT_NE(fixture.thread.submit(foreign).error().message.find("1000"), std::string::npos);
  Request many = fixture.request(1, 4);
  many.n = 5;
  EXPECT_EQ(fixture.thread.submit(many).error().param, "n");
  Request empty = fixture.request(1, 4);
  empty.prompt.clear();
  EXPECT_EQ(fixture.thread.submit(empty).error().param, "prompt");
}

TEST(EngineThread, DestructionCancelsWhatIsLeft) {
  auto fixture = std::make_unique<Fixture>();
  fixture->start();
  const std::shared_ptr<Collector> sink = fixture->sink;
  for (uint64_t tag = 1; tag <= 5; ++tag) {
    ASSERT_TRUE(fixture->thread.submit(fixture->request(tag, 100)).ok());
  }
  fixture->thread.cancel_all();
  sink->wait_for(5);
  fixture.reset();
}

}  // namespace
}  // namespace tandem
