#include "exec/completion_notifier.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "base/check.h"
#include "device/cpu/cpu_device.h"

namespace tandem {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// A notifier of the cpu device, and how often it called its owner.
class Bench {
 public:
  Bench() {
    auto made = device::make_cpu_device({.threads = 1});
    CHECK(made.ok(), "{}", made.error().message);
    device = std::move(made).value();
    stream = device->create_stream();
    notifier = std::make_unique<CompletionNotifier>(*device, [this] { ++calls; });
    device->set_listener([this] { notifier->ring(); });
  }
  ~Bench() { finish(); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // Everything recorded has completed, and the calls for it have returned.
  void finish() { device->synchronize(device->record_polled(stream)); }
  void answer(Nanos at, bool more_follow) {
    notifier->answered({.at = at, .more_follow = more_follow});
  }

  std::unique_ptr<device::Device> device;
  device::StreamId stream{};
  std::unique_ptr<CompletionNotifier> notifier;
  std::atomic<int> calls{0};
};

TEST(CompletionNotifier, WithoutAnIntervalEveryEventCallsTheOwner) {
  Bench bench;
  bench.notifier->record(bench.stream, Notify::kOnCompletion);
  bench.notifier->record(bench.stream, Notify::kPolled);
  bench.finish();
  EXPECT_EQ(bench.calls, 2);
}

TEST(CompletionNotifier, PolledEventsCallTheOwnerOnceTheIntervalIsOver) {
  Bench bench;
  bench.notifier->set_min_interval(milliseconds(1));
  const device::EventId polled = bench.notifier->record(bench.stream, Notify::kPolled);
  bench.notifier->record(bench.stream, Notify::kPolled);
  bench.finish();
  EXPECT_TRUE(bench.device->query(polled));
  EXPECT_EQ(bench.calls, 0);
  bench.notifier->record(bench.stream, Notify::kOnCompletion);
  bench.finish();
  EXPECT_EQ(bench.calls, 1);
  bench.notifier->set_min_interval(Nanos{0});
  bench.finish();
  EXPECT_EQ(bench.calls, 2);
  bench.notifier->set_min_interval(milliseconds(1));
  bench.notifier->set_min_interval(Nanos{0});
  bench.finish();
  EXPECT_EQ(bench.calls, 2) << "nothing was held back";
}

TEST(CompletionNotifier, AnswersCallTheOwnerOnceUntilItHasPolled) {
  Bench bench;
  bench.answer(milliseconds(1), false);
  bench.answer(milliseconds(2), false);
  bench.answer(milliseconds(3), true);
  EXPECT_EQ(bench.calls, 1);
  bench.notifier->polled();
  EXPECT_EQ(bench.calls, 1);
  bench.answer(milliseconds(4), true);
  EXPECT_EQ(bench.calls, 2);
}

TEST(CompletionNotifier, AnswersThatAreFollowedByMoreWaitForTheInterval) {
  Bench bench;
  bench.notifier->set_min_interval(milliseconds(1));
  bench.answer(milliseconds(10), true);
  EXPECT_EQ(bench.calls, 1);
  bench.notifier->polled();
  bench.answer(milliseconds(10) + microseconds(900), true);
  EXPECT_EQ(bench.calls, 1);
  bench.answer(milliseconds(11), true);
  EXPECT_EQ(bench.calls, 2);
  bench.notifier->polled();
  bench.answer(milliseconds(11) + microseconds(1), false);
  EXPECT_EQ(bench.calls, 3) << "no later answer would call the owner";
}

TEST(CompletionNotifier, AnswersOfWorkersWhoseClocksCrossDoNotWaitWithoutAnInterval) {
  Bench bench;
  bench.answer(milliseconds(10), true);
  bench.notifier->polled();
  bench.answer(milliseconds(9), true);
  EXPECT_EQ(bench.calls, 2);
}

TEST(CompletionNotifier, AnswersHeldBackCallTheOwnerWhenTheIntervalEnds) {
  Bench bench;
  bench.notifier->set_min_interval(milliseconds(1));
  bench.answer(milliseconds(10), false);
  bench.notifier->polled();
  bench.answer(milliseconds(10), true);
  bench.notifier->set_min_interval(Nanos{0});
  EXPECT_EQ(bench.calls, 2);
  // Polled meanwhile: there is nothing to call for.
  bench.notifier->polled();
  bench.notifier->set_min_interval(milliseconds(1));
  bench.answer(milliseconds(10), true);
  bench.notifier->polled();
  bench.notifier->set_min_interval(Nanos{0});
  EXPECT_EQ(bench.calls, 2);
}

// An answer comes while the interval ends: the owner has seen it by polling, or is called.
TEST(CompletionNotifier, NoAnswerIsLostWhileTheIntervalEnds) {
  Bench bench;
  constexpr int kRounds = 3000;
  std::atomic<int> round{0};
  std::atomic<int> answers{0};
  std::thread worker([&] {
    for (int i = 1; i <= kRounds; ++i) {
      while (round.load() < i) {
        std::this_thread::yield();
      }
      answers.store(i);
      bench.answer(milliseconds(10), true);
      round.store(-i);
    }
  });
  bench.answer(milliseconds(10), false);  // the last call was just now
  int lost = 0;
  for (int i = 1; i <= kRounds; ++i) {
    bench.notifier->set_min_interval(milliseconds(1));
    bench.notifier->polled();
    const int calls = bench.calls;
    round.store(i);
    bench.notifier->polled();
    const bool seen = answers.load() == i;
    bench.notifier->set_min_interval(Nanos{0});
    while (round.load() != -i) {
      std::this_thread::yield();
    }
    lost += seen || bench.calls > calls ? 0 : 1;
  }
  worker.join();
  EXPECT_EQ(lost, 0);
}

}  // namespace
}  // namespace tandem
