// Host workers that throw, hang, are slow or answer twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "piggyback/workers/attention_workers.h"
#include "piggyback/workers/faulty_workers.h"
#include "piggyback/workers/test_support.h"

namespace tandem::piggyback {
namespace {

constexpr HostShape small_shape() { return {.kv_heads = 1, .group = 1}; }

TEST(WorkerFaults, AThrownTaskIsAnsweredAsFailedAndTheOthersAreDone) {
  for (const WorkerPoint where :
       {WorkerPoint::kAppend, WorkerPoint::kAttend, WorkerPoint::kAnswer}) {
    SteeredHook hook([&](WorkerPoint point, const HopTask& task) {
      return point == where && task.hop.slot == 1 ? WorkerAct::kThrow : WorkerAct::kGoOn;
    });
    HostRows rows(small_shape(), {3, 4, 5}, 1);
    AttentionWorkersOptions options = rows.options();
    options.threads = 2;
    options.hook = &hook;
    const std::unique_ptr<AttentionWorkers> attention = start(options);
    const std::vector<HopAnswer> done = run_all(*attention, rows.tasks(0));
    ASSERT_EQ(done.size(), 3U);
    EXPECT_FALSE(done[0].failed);
    EXPECT_TRUE(done[1].failed);
    EXPECT_FALSE(done[2].failed);
    EXPECT_EQ(attention->counts().failed, 1);
    EXPECT_EQ(attention->counts().tasks, 2);
  }
}

TEST(WorkerFaults, OnePieceThatThrowsFailsItsWholeTaskOnce) {
  std::atomic<int> attends{0};
  SteeredHook hook([&](WorkerPoint point, const HopTask&) {
    return point == WorkerPoint::kAttend && attends++ == 2 ? WorkerAct::kThrow : WorkerAct::kGoOn;
  });
  HostRows rows({.kv_heads = 4, .group = 1, .head_dim = 64}, {4999}, 1);
  AttentionWorkersOptions options = rows.options();
  options.threads = 3;
  options.hook = &hook;
  const std::unique_ptr<AttentionWorkers> attention = start(options);
  const std::vector<HopAnswer> done = run_all(*attention, rows.tasks(0));
  ASSERT_EQ(done.size(), 1U);
  EXPECT_TRUE(done[0].failed);
  EXPECT_GT(attends.load(), 4) << "the task was cut";
  const std::vector<HopAnswer> again = run_all(*attention, rows.tasks(0));
  ASSERT_EQ(again.size(), 1U);
  EXPECT_FALSE(again[0].failed);
}

TEST(WorkerFaults, AHungWorkerHoldsItsOwnTaskAndNoOther) {
  Gate gate;
  SteeredHook hook([&](WorkerPoint point, const HopTask& task) {
    if (point == WorkerPoint::kAppend && task.hop.slot == 0 && task.attempt == 0) {
      gate.pass();
    }
    return WorkerAct::kGoOn;
  });
  HostRows rows(small_shape(), {100, 3, 4, 5, 6, 7}, 1);
  const std::vector<std::byte> expected = rows.plain(0);
  rows.reset();
  AttentionWorkersOptions options = rows.options();
  options.threads = 2;
  options.hook = &hook;
  const std::unique_ptr<AttentionWorkers> attention = start(options);
  Answers answers(*attention);
  std::vector<HopTask> tasks = rows.tasks(0);
  attention->submit(tasks);
  gate.wait_for_arrivals(1);
  answers.wait(5);
  // Tried again elsewhere while it still hangs.
  HopTask again = tasks[0];
  again.attempt = 1;
  attention->submit({&again, 1});
  EXPECT_EQ(answers.wait(6).back().attempt, 1);
  EXPECT_EQ(rows.results(), expected);
  // Withdrawn, it is answered for while it hangs, and writes and says nothing when it comes back.
  attention->withdraw(tasks[0].hop, 0);
  const HopAnswer late = answers.wait(7).back();
  EXPECT_EQ(late.attempt, 0);
  EXPECT_TRUE(late.failed);
  rows.reset();
  const std::vector<std::byte> nothing = rows.results();
  gate.open();
  EXPECT_EQ(attention->stop(std::chrono::seconds(60)), 0);
  EXPECT_EQ(rows.results(), nothing);
  EXPECT_EQ(answers.look().size(), 7U);
}

TEST(WorkerFaults, AnAttemptIsAnsweredOnceHoweverItsWithdrawalFalls) {
  HostRows rows({.kv_heads = 2, .group = 1, .head_dim = 64}, {40, 2999, 200, 90}, 1);
  AttentionWorkersOptions options = rows.options();
  options.threads = 3;
  const std::unique_ptr<AttentionWorkers> attention = start(options);
  Answers answers(*attention);
  std::vector<HopTask> tasks = rows.tasks(0);
  constexpr int32_t kRounds = 60;
  for (int32_t round = 0; round < kRounds; ++round) {
    for (HopTask& task : tasks) {
      task.attempt = round;
    }
    attention->submit(tasks);
    const HopTask& one = tasks[static_cast<size_t>(round) % tasks.size()];
    if (round % 3 == 0) {
      answers.wait(static_cast<size_t>(round) * tasks.size() + 1);
    }
    attention->withdraw(one.hop, round);
    answers.wait(static_cast<size_t>(round + 1) * tasks.size());
  }
  EXPECT_EQ(attention->stop(std::chrono::seconds(60)), 0);
  EXPECT_EQ(answers.look().size(), kRounds * tasks.size());
  EXPECT_EQ(attention->waiting(), 0);
}

TEST(WorkerFaults, ALateAttemptThatWasNotWithdrawnWritesTheSameBits) {
  Gate gate;
  SteeredHook hook([&](WorkerPoint point, const HopTask& task) {
    if (point == WorkerPoint::kAppend && task.attempt == 0) {
      gate.pass();
    }
    return WorkerAct::kGoOn;
  });
  HostRows rows(small_shape(), {100}, 1);
  const std::vector<std::byte> expected = rows.plain(0);
  rows.reset();
  AttentionWorkersOptions options = rows.options();
  options.threads = 2;
  options.hook = &hook;
  const std::unique_ptr<AttentionWorkers> attention = start(options);
  Answers answers(*attention);
  std::vector<HopTask> tasks = rows.tasks(0);
  attention->submit(tasks);
  gate.wait_for_arrivals(1);
  tasks[0].attempt = 1;
  attention->submit(tasks);
  answers.wait(1);
  EXPECT_EQ(rows.results(), expected);
  gate.open();
  EXPECT_FALSE(answers.wait(2).back().failed);
  attention->set_listener(nullptr);
  EXPECT_EQ(rows.results(), expected);
}

TEST(WorkerFaults, APieceThatHangsLeavesItsTaskOpenAndTheWorkersFree) {
  Gate gate;
  std::atomic<bool> hung{false};
  SteeredHook hook([&](WorkerPoint point, const HopTask& task) {
    if (point == WorkerPoint::kAttend && task.attempt == 0 && task.position > 1000 &&
        !hung.exchange(true)) {
      gate.pass();
    }
    return WorkerAct::kGoOn;
  });
  HostRows rows({.kv_heads = 4, .group = 1, .head_dim = 64}, {4999, 10}, 1);
  const std::vector<std::byte> expected = rows.plain(0);
  rows.reset();
  AttentionWorkersOptions options = rows.options();
  options.threads = 2;
  options.hook = &hook;
  const std::unique_ptr<AttentionWorkers> attention = start(options);
  Answers answers(*attention);
  std::vector<HopTask> tasks = rows.tasks(0);
  attention->submit(tasks);
  gate.wait_for_arrivals(1);
  EXPECT_EQ(answers.wait(1)[0].hop.slot, 1);
  HopTask again = tasks[0];
  again.attempt = 1;
  attention->submit({&again, 1});
  EXPECT_EQ(answers.wait(2)[1].attempt, 1);
  EXPECT_EQ(rows.results(), expected);
  gate.open();
  EXPECT_EQ(answers.wait(3)[2].attempt, 0);
  attention->set_listener(nullptr);
  EXPECT_EQ(rows.results(), expected);
}

TEST(WorkerFaults, AnswersMayComeTwice) {
  SteeredHook hook([](WorkerPoint point, const HopTask&) {
    return point == WorkerPoint::kAnswer ? WorkerAct::kAnswerTwice : WorkerAct::kGoOn;
  });
  HostRows rows(small_shape(), {3}, 1);
  AttentionWorkersOptions options = rows.options();
  options.hook = &hook;
  const std::unique_ptr<AttentionWorkers> attention = start(options);
  EXPECT_EQ(run_all(*attention, rows.tasks(0)).size(), 2U);
}

TEST(WorkerFaults, AnAnswerFromBeforeComesBesideTheRightOne) {
  SteeredHook hook([](WorkerPoint point, const HopTask& task) {
    return point == WorkerPoint::kAnswer && task.attempt == 20 ? WorkerAct::kAnswerOutdated
                                                               : WorkerAct::kGoOn;
  });
  HostRows rows(small_shape(), {3}, 1);
  AttentionWorkersOptions options = rows.options();
  options.hook = &hook;
  const std::unique_ptr<AttentionWorkers> attention = start(options);
  Answers answers(*attention);
  std::vector<HopTask> tasks = rows.tasks(0);
  for (int32_t attempt = 0; attempt <= 20; ++attempt) {
    tasks[0].attempt = attempt;
    attention->submit(tasks);
    answers.wait(static_cast<size_t>(attempt) + 1);
  }
  const std::vector<HopAnswer> all = answers.wait(22);
  EXPECT_EQ(all[20].attempt, 20);
  EXPECT_LT(all[21].attempt, 20);
  attention->set_listener(nullptr);
}

TEST(WorkerFaults, WhatAStuckWorkerMayTouchLivesAsLongAsItDoes) {
  static Gate gate;
  static SteeredHook hook([](WorkerPoint point, const HopTask&) {
    if (point == WorkerPoint::kKernel) {
      gate.pass();
    }
    return WorkerAct::kGoOn;
  });
  static HostRows rows(small_shape(), {3}, 1);
  auto kept = std::make_shared<int>(1);
  const std::weak_ptr<int> alive = kept;
  AttentionWorkersOptions options = rows.options();
  options.hook = &hook;
  options.spec.owner = std::move(kept);
  std::unique_ptr<AttentionWorkers> attention = start(options);
  options.spec.owner.reset();
  Answers answers(*attention);
  const std::vector<HopTask> tasks = rows.tasks(0);
  attention->submit(tasks);
  gate.wait_for_arrivals(1);
  attention->withdraw(tasks[0].hop, 0);
  EXPECT_TRUE(answers.look().empty()) << "it may still write, so it has not answered";
  EXPECT_EQ(attention->stop(std::chrono::milliseconds(20)), 1);
  attention.reset();
  EXPECT_FALSE(alive.expired());
  gate.open();
  while (!alive.expired()) {
    std::this_thread::yield();
  }
}

TEST(WorkerFaults, FrozenWorkersBeginNothingUntilTheyThaw) {
  HostRows rows(small_shape(), {3, 4}, 1);
  const std::unique_ptr<AttentionWorkers> attention = start(rows.options());
  attention->freeze();
  const std::vector<HopTask> tasks = rows.tasks(0);
  Answers answers(*attention);
  attention->submit(tasks);
  EXPECT_EQ(attention->waiting(), 2);
  EXPECT_TRUE(answers.look().empty());
  attention->withdraw(tasks[1].hop, 0);
  ASSERT_EQ(answers.look().size(), 1U);
  EXPECT_TRUE(answers.look()[0].failed);
  EXPECT_EQ(answers.look()[0].worker, -1);
  attention->thaw();
  EXPECT_EQ(answers.wait(2)[1].hop, tasks[0].hop);
  attention->set_listener(nullptr);
}

TEST(WorkerFaults, StoppingDoesNotWaitForEverForAWorkerThatHangs) {
  // All that a worker left behind may touch outlives it.
  static Gate gate;
  static std::atomic<bool> over{false};
  static SteeredHook hook([](WorkerPoint point, const HopTask&) {
    if (point == WorkerPoint::kAppend) {
      gate.pass();
    }
    if (point == WorkerPoint::kAnswer) {
      over = true;
    }
    return WorkerAct::kGoOn;
  });
  static HostRows rows(small_shape(), {3}, 1);
  AttentionWorkersOptions options = rows.options();
  options.threads = 2;
  options.hook = &hook;
  const std::unique_ptr<AttentionWorkers> attention = start(options);
  const std::vector<std::byte> before = rows.results();
  attention->submit(rows.tasks(0));
  gate.wait_for_arrivals(1);
  EXPECT_EQ(attention->stop(std::chrono::milliseconds(20)), 1);
  gate.open();
  while (!over) {
    std::this_thread::yield();
  }
  EXPECT_EQ(rows.results(), before) << "it comes back to a stop and writes nothing";
}

TEST(WorkerFaults, AreReadFromTheirText) {
  const auto faults = parse_worker_faults("throw:20+stuck:1", 7);
  ASSERT_TRUE(faults.ok()) << faults.error().message;
  EXPECT_EQ(faults->throws, 20);
  EXPECT_EQ(faults->stuck, 1);
  EXPECT_EQ(faults->total(), 21);
  EXPECT_EQ(faults->seed, 7U);
  EXPECT_EQ(parse_worker_faults("", 1)->total(), 0);
}

TEST(WorkerFaults, ABrokenTextIsRefusedByItsPart) {
  for (const auto& [text, words] : std::initializer_list<std::pair<const char*, const char*>>{
           {"burn:3", "unknown fault \"burn\"; known are throw"},
           {"throw", "throw needs how many of a thousand"},
           {"late:0", "late needs how many"},
           {"late:1001", "late needs how many"},
           {"late:2x", "late needs how many"},
           {"late:2+late:2", "late is given twice"},
           {"late:600+hang:600", "1200 of a thousand"}}) {
    const auto refused = parse_worker_faults(text, 1);
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_NE(refused.error().message.find(words), std::string::npos) << refused.error().message;
  }
}

}  // namespace
}  // namespace tandem::piggyback
