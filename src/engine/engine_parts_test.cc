// Parts of the engine, each alone.
#include <gtest/gtest.h>

#include <memory>

#include "base/log.h"
#include "engine/gauges.h"
#include "engine/test_parts.h"
#include "latency/modular_model.h"

namespace tandem {
namespace {

using namespace std::chrono_literals;
using testing::EngineTestParts;
using testing::KeepingSink;

TEST(HostTrust, IsLostAfterFourFailuresInARowForLongerEachTime) {
  HostTrust trust;
  for (int i = 0; i < 3; ++i) {
    trust.failed(1s);
  }
  EXPECT_FALSE(trust.suspended(1s));
  trust.succeeded();
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(trust.suspended(1s)) << "failures before a success do not count";
    trust.failed(1s);
  }
  EXPECT_TRUE(trust.suspended(1s));
  EXPECT_TRUE(trust.suspended(11s - 1ns) && !trust.suspended(11s));
  trust.failed(2s);
  EXPECT_TRUE(trust.suspended(11s - 1ns) && !trust.suspended(11s)) << "it is suspended already";
  trust.failed(12s);
  EXPECT_TRUE(trust.suspended(32s - 1ns) && !trust.suspended(32s)) << "doubled";
  trust.succeeded();
  for (int i = 0; i < 4; ++i) {
    trust.failed(40s);
  }
  EXPECT_TRUE(trust.suspended(50s - 1ns) && !trust.suspended(50s)) << "a success ends the doubling";
}

TEST(ShortfallLog, CountsAllAndLogsTheFirstSecondFourth) {
  EngineTestParts parts;
  ShortfallLog shortfalls("greedy", parts.kv, parts.step);
  ASSERT_TRUE(log::start("error").ok());
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 7; ++i) {
    shortfalls.add("a slice", SequenceId{40 + i});
  }
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(parts.step.record.put_off, 7);
  for (const char* expected :
       {"greedy planned a slice of sequence 40", "sequence 41 ", "sequence 43 ",
        "32 of 32 KV blocks are free, 16 of 16 on the host", "has happened 4 times"}) {
    EXPECT_NE(told.find(expected), std::string::npos) << expected << " in\n" << told;
  }
  EXPECT_EQ(told.find("sequence 42 "), std::string::npos) << "logged rarely";
}

TEST(EventOutbox, DeliversToEachSinkOnceAndSkipsRequestsWithoutOne) {
  EngineTestParts parts;
  LiveSequence& first = parts.add(1, 4);
  LiveSequence& second = parts.add(2, 4);
  parts.sink = std::make_shared<KeepingSink>();
  LiveSequence& other = parts.add(3, 4);
  parts.sink = nullptr;
  LiveSequence& silent = parts.add(4, 4);
  EventOutbox outbox(0);
  for (LiveSequence* sequence : {&first, &other, &second, &first}) {
    outbox.add(*sequence, TokenEvent::Kind::kToken, 0)->token = 5;
  }
  EXPECT_EQ(outbox.add(silent, TokenEvent::Kind::kToken, 0), nullptr);
  outbox.deliver();
  outbox.deliver();
  const auto& shared = static_cast<const KeepingSink&>(*first.sink);
  EXPECT_EQ(shared.deliveries, 1);
  ASSERT_EQ(shared.events.size(), 3U);
  EXPECT_EQ(shared.events[1].request, RequestId{2});
  EXPECT_EQ(static_cast<const KeepingSink&>(*other.sink).events.size(), 1U);
}

TEST(SequenceFinisher, TellsTheClientOnceAndEndsChoicesThatWereNeverForked) {
  EngineTestParts parts;
  Request request;
  request.n = 3;
  LiveSequence& sequence = parts.add(1, 4, request);
  parts.finisher.finish(sequence, FinishReason::kError, 1s, "no room");
  parts.finisher.finish(sequence, FinishReason::kStop, 1s);
  parts.outbox.deliver();
  ASSERT_EQ(parts.sink->events.size(), 3U);
  for (int32_t choice = 0; choice < 3; ++choice) {
    const TokenEvent& event = parts.sink->events[static_cast<size_t>(choice)];
    EXPECT_EQ(event.choice, choice);
    EXPECT_EQ(event.finish->reason, FinishReason::kError);
    EXPECT_EQ(event.finish->error, "no room");
  }
  parts.table.remove_ended(parts.kv);
  EXPECT_EQ(parts.table.size(), 0);
}

TEST(TierMover, OffloadsOnlyIfTheHostHasRoomAndReportsAShortfall) {
  EngineTestParts parts;
  parts.add_decoding(1, 40);  // 10 blocks of the host's 16
  parts.add_decoding(2, 40);
  StepPlan plan;
  plan.offload = {SequenceId{1}, SequenceId{2}};
  EXPECT_TRUE(parts.mover.begin_transfers(plan));
  EXPECT_EQ(parts.step.record.put_off, 1);
  EXPECT_EQ(parts.table.offloaded().size(), 1U);
  EXPECT_EQ(parts.table.running().size(), 1U);
  ASSERT_EQ(parts.step.input.transfers.size(), 1U);
  EXPECT_TRUE(parts.mover.busy());
  EXPECT_EQ(gauges_of(parts.table, parts.kv, false).moving, 1);
  parts.expect_sound();

  TierEvents events;
  events.transfers_done = {parts.step.input.transfers.front().id};
  EXPECT_TRUE(parts.mover.absorb(events, 1ms).empty());
  parts.mover.settle();
  EXPECT_FALSE(parts.mover.busy());
  EXPECT_EQ(gauges_of(parts.table, parts.kv, false).moving, 0);
  EXPECT_EQ(gauges_of(parts.table, parts.kv, false).offloaded, 1);
  EXPECT_EQ(parts.table.count(SequenceState::kParkedWaiting), 1);
  parts.expect_sound();
}

TEST(TierMover, GivesUpASequenceThatTheHostFailedTooOften) {
  EngineTestParts parts;
  LiveSequence& sequence = parts.add_decoding(1, 8);
  StepPlan plan;
  plan.offload = {sequence.id};
  parts.mover.begin_transfers(plan);
  TierEvents copied;
  copied.transfers_done = {sequence.transfer};
  EXPECT_TRUE(parts.mover.absorb(copied, 1ms).empty());
  parts.mover.settle();
  TierEvents failed;
  failed.failed = {sequence.id};
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(parts.mover.enter_tokens({}));
    ASSERT_EQ(parts.mover.tokens_under_way(), 1);
    EXPECT_EQ(parts.mover.absorb(failed, 1ms).size(), i < 2 ? 0U : 1U);
    parts.expect_sound();
  }
}

TEST(StepAssembler, LeavesOutSlicesWithoutRoomAndKeepsTheOthers) {
  EngineTestParts parts;
  StepAssembler assembler(parts.table, parts.kv, parts.mover, parts.shortfalls,
                          parts.executor.limits(), parts.step);
  const SequenceId first = parts.add_decoding(1, 6).id;
  const SequenceId second = parts.add_decoding(2, 6).id;
  StepPlan plan;
  plan.slices = {{first, 2}, {SequenceId{77}, 1}, {second, 1}};
  assembler.begin();
  EXPECT_FALSE(assembler.assemble(plan));
  EXPECT_EQ(parts.step.record.put_off, 2) << "one has no 2 tokens to compute, one is unknown";
  ASSERT_EQ(parts.step.input.slices.size(), 1U);
  EXPECT_EQ(parts.step.input.slices[0].sequence, second);
  EXPECT_EQ(parts.step.input.slices[0].first_position, 6);
  ASSERT_EQ(parts.step.input.slices[0].samples.size(), 1U);
  EXPECT_EQ(parts.step.shape.rows(), 1);
}

// The second lane reads the weights again. The time that the host held up a step teaches
// nothing of the accelerator.
TEST(StepCommitter, AStepWithLanesIsPredictedAndLearntFromAsOne) {
  EngineTestParts parts;
  latency::ModularCosts costs;
  costs.layers = 2;
  costs.dense = latency::Ladder::through({{1, 1e6}, {64, 1e6}}).value();
  latency::CorrectedModel times(std::make_unique<latency::ModularModel>(
      latency::ModularModel::create(std::move(costs)).value()));
  StepCommitter committer(8, &times, parts.table, parts.kv, parts.mover, parts.outbox,
                          parts.finisher, parts.step);
  StepResult result;
  result.visits = 6;
  result.second = {.visits = 6, .stages = 2, .logits = 0};
  result.held = 3ms;
  for (int i = 0; i < 100; ++i) {
    parts.step.input.mode = StepMode::kLanes;
    parts.step.shape = {};
    parts.step.shape.add_decode(100);
    parts.step.record.duration = 5ms;
    committer.learn(result);
    EXPECT_EQ(parts.step.record.predicted, 2ms);
    EXPECT_EQ(parts.step.record.correction, 1);
  }
  parts.step.input.mode = StepMode::kGroups;
  parts.step.shape = {};
  parts.step.shape.add_decode(100);
  result.held = 0ms;
  committer.learn(result);
  EXPECT_EQ(parts.step.record.predicted, 1ms) << "one pass for all";
}

TEST(StepCommitter, ACommittedTokenIsAnEventAndTheLastOneEndsTheSequence) {
  EngineTestParts parts;
  StepAssembler assembler(parts.table, parts.kv, parts.mover, parts.shortfalls,
                          parts.executor.limits(), parts.step);
  StepCommitter committer(8, nullptr, parts.table, parts.kv, parts.mover, parts.outbox,
                          parts.finisher, parts.step);
  LiveSequence& sequence = parts.add_decoding(1, 6);
  const SequenceId id = sequence.id;
  StepPlan plan;
  plan.slices = {{id, 1}};
  assembler.begin();
  assembler.assemble(plan);
  StepResult result;
  result.samples.push_back({.sequence = id, .token = 9, .logprobs = nullptr});
  committer.commit(result);
  parts.outbox.deliver();
  ASSERT_EQ(parts.sink->events.size(), 2U);
  EXPECT_EQ(parts.sink->events[0].token, 9);
  EXPECT_EQ(parts.sink->events[1].finish->reason, FinishReason::kLength) << "of 8 tokens at most";
  EXPECT_EQ(parts.table.size(), 0);
  EXPECT_EQ(parts.kv.free_blocks(), 32);
}

TEST(ViewBuilder, ShowsTheFirstBestEffortSequenceBehindALineThatHidesIt) {
  EngineTestParts parts;
  HostTrust trust;
  ViewBuilder views({.max_running = 8}, parts.table, parts.kv, parts.executor, trust, parts.step);
  parts.add(1, 200);  // finds no blocks
  parts.add(2, 4);
  parts.add_flex(3, 4);
  parts.add_flex(4, 4);
  const SystemView view = views.make();
  ASSERT_EQ(view.waiting.size(), 2U);
  EXPECT_EQ(view.waiting[0].request, RequestId{1});
  EXPECT_EQ(view.waiting[1].request, RequestId{3});
  EXPECT_EQ(view.budget.sequences, 8);
  EXPECT_TRUE(views.audit().ok());
}

TEST(ViewBuilder, ShowsAllOfTheQueueToPoliciesThatLookPastItsHead) {
  EngineTestParts parts;
  HostTrust trust;
  ViewBuilder views({.max_running = 8}, parts.table, parts.kv, parts.executor, trust, parts.step);
  Request request;
  request.tenant = "a";
  parts.add(1, 200, request);  // finds no blocks
  parts.add(2, 9, request);
  parts.add(3, 9);
  parts.add_flex(4, 4);
  const SystemView view = views.make();
  EXPECT_EQ(view.waiting.size(), 2U);
  ASSERT_NE(view.queue, nullptr);
  std::vector<const QueueEntry*> entries;
  for (auto run = view.queue->next(nullptr); !run.empty(); run = view.queue->next(run.back())) {
    entries.insert(entries.end(), run.begin(), run.end());
  }
  ASSERT_EQ(entries.size(), 4U);
  EXPECT_EQ(view.queue->head(ServiceClass::kBestEffort), entries[3]);
  EXPECT_EQ(view.queue->size(ServiceClass::kLatencySensitive), 3U);
  EXPECT_EQ(view.queue->show(*entries[1])->request, RequestId{2});
  EXPECT_EQ(view.queue->show(*entries[1])->pending_tokens(), 9);
  const QueuePrefix first = view.queue->prefix_of(*entries[0]);
  const QueuePrefix second = view.queue->prefix_of(*entries[1]);
  const QueuePrefix other = view.queue->prefix_of(*entries[2]);
  EXPECT_EQ(first.tenant, second.tenant);
  EXPECT_EQ(first.blocks[1], second.blocks[1]) << "both begin with 1, 2, ..";
  EXPECT_NE(first.tenant, other.tenant);
  EXPECT_NE(first.blocks[0], other.blocks[0]);
}

struct RefusingAdmission final : Admission {
  AdmissionVerdict decide(const AdmissionView& view, const AdmissionAsk& /*ask*/) override {
    seen = static_cast<int64_t>(view.prompts.size());
    return {.answer = refuse ? AdmissionAnswer::kRefuse : AdmissionAnswer::kAccept,
            .reason = refuse ? RefusalReason::kBlocks : RefusalReason::kNone,
            .ttft = 5ms};
  }
  void ended(int32_t /*output_tokens*/) override {}
  bool refuse = false;
  int64_t seen = -1;
};

TEST(AdmissionBook, CountsAcceptedRequestsBeforeTheyReachTheEngine) {
  EngineTestParts parts;
  RefusingAdmission admission;
  AdmissionBook book({.max_running = 8, .max_model_len = 64}, &admission, parts.table, parts.kv,
                     parts.step, parts.clock, observe::no_observer());
  parts.add(1, 4);
  Request request;
  request.prompt = {1, 2, 3};
  for (int64_t id = 2; id < 5; ++id) {
    Arrival arrival = Engine::make_arrival(RequestId{id}, request, 0ms, 4);
    admission.refuse = id == 3;
    EXPECT_EQ(book.consider(arrival, 0ms).verdict.answer,
              id == 3 ? AdmissionAnswer::kRefuse : AdmissionAnswer::kAccept);
    EXPECT_EQ(arrival.forecast_ttft.has_value(), id != 3);
    EXPECT_EQ(admission.seen, id < 4 ? id - 1 : 2) << "the refused one is not in the line";
  }
  book.invalidate();
  Arrival late = Engine::make_arrival(RequestId{9}, request, 0ms, 4);
  book.consider(late, 0ms);
  EXPECT_EQ(admission.seen, 1) << "gathered anew from the sequences";
}

struct CountingPolicy final : StepPolicy {
  explicit CountingPolicy(StepPolicy& policy) : inner(policy) {}
  [[nodiscard]] std::string_view name() const override { return inner.name(); }
  [[nodiscard]] std::unique_ptr<QueueOrder> make_queue_order() const override {
    return inner.make_queue_order();
  }
  StepPlan plan(const SystemView& view) override {
    ++plans;
    return inner.plan(view);
  }
  StepPolicy& inner;
  int plans = 0;
};

TEST(Engine, CommitsAFinishedStepWithoutLaunchingTheNext) {
  ManualClock clock;
  testing::EchoExecutor executor(testing::EchoOptions{}, clock);
  const PolicyParts inner = make_policy("accel_only", {}, {}).value();
  CountingPolicy policy(*inner.step);
  Engine engine({.max_running = 4, .max_model_len = 64},
                {.executor = executor, .policy = policy, .clock = clock});
  auto sink = std::make_shared<KeepingSink>();
  Request request = testing::make_request({1, 2, 3}, 2);
  request.sink = sink;
  EngineInputs inputs;
  inputs.emplace_back(Engine::make_arrival(RequestId{1}, std::move(request), 0ms, 4));
  EXPECT_EQ(engine.advance(clock.now(), inputs).activity, EngineActivity::kStepRunning);
  EXPECT_TRUE(inputs.empty());
  inputs.emplace_back(EngineCancel{RequestId{7}});
  EXPECT_EQ(engine.advance(clock.now(), inputs).activity, EngineActivity::kStepRunning);
  EXPECT_EQ(inputs.size(), 1U) << "left for an advance that plans";
  EXPECT_FALSE(engine.commit(clock.now())) << "the step is still running";
  clock.set(executor.next_event());
  EXPECT_TRUE(engine.commit(clock.now()));
  EXPECT_EQ(sink->events.size(), 1U);
  EXPECT_EQ(policy.plans, 1);
  EXPECT_TRUE(engine.commit(clock.now()));
  EXPECT_EQ(engine.advance(clock.now(), inputs).activity, EngineActivity::kStepRunning);
  clock.set(executor.next_event());
  const EngineAdvance last = engine.advance(clock.now(), inputs);
  EXPECT_EQ(last.activity, EngineActivity::kIdle);
  EXPECT_EQ(last.next_wakeup, Nanos::max());
  EXPECT_EQ(sink->events.size(), 3U) << "two tokens and the end";
}

TEST(Engine, ACommitForgetsNoRequestThatAdmissionHasAccepted) {
  ManualClock clock;
  testing::EchoExecutor executor(testing::EchoOptions{}, clock);
  const PolicyParts policy = make_policy("sarathi", {}, {}).value();
  RefusingAdmission admission;
  Engine engine(
      {.max_running = 4, .max_model_len = 64},
      {.executor = executor, .policy = *policy.step, .clock = clock, .admission = &admission});
  const auto arrival = [](int64_t id) {
    Request request = testing::make_request({1, 2, 3}, 2);
    request.sink = std::make_shared<KeepingSink>();
    return Engine::make_arrival(RequestId{id}, std::move(request), 0ms, 4);
  };
  EngineInputs inputs;
  inputs.emplace_back(arrival(1));
  engine.advance(clock.now(), inputs);
  Arrival accepted = arrival(2);
  engine.consider(accepted, clock.now());
  const int64_t before = admission.seen;
  clock.set(executor.next_event());
  ASSERT_TRUE(engine.commit(clock.now()));
  Arrival next = arrival(3);
  engine.consider(next, clock.now());
  EXPECT_EQ(admission.seen, before + 1) << "the accepted request is in the line";
}

}  // namespace
}  // namespace tandem
