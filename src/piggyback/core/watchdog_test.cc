// Workers that hang, throw, answer late or twice, in virtual time.
#include "piggyback/core/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/hop_core_view.h"

namespace tandem::piggyback {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr SequenceId kFirst{1};
constexpr SequenceId kSecond{2};

class WatchdogTest : public testing::Test {
 protected:
  // Both sequences wait for a worker's answer.
  void SetUp() override {
    ASSERT_TRUE(core.enter(kFirst, 0, 0, now) && core.enter(kSecond, 0, 0, now));
    std::vector<Visit> visits;
    core.bind(0, 2, 1, visits);
    for (const Visit& visit : visits) {
      core.exits_copied({&visit.hop, 1});
    }
    a = next();
    b = next();
  }
  HopTask next() {
    HopTask task;
    CHECK(core.next_task(now, task));
    return task;
  }
  bool nothing_due() {
    HopTask task;
    return !core.next_task(now, task);
  }
  std::vector<HopTask> look_at(Nanos time) {
    now = time;
    std::vector<HopTask> dropped;
    given_up += watchdog.check(now, core, dropped);
    EXPECT_TRUE(core.audit().ok()) << core.audit().error().message;
    return dropped;
  }
  std::vector<SequenceId> failed() {
    std::vector<SequenceId> sequences;
    core.take_failed(sequences);
    return sequences;
  }
  std::vector<SequenceId> left() {
    std::vector<SequenceId> sequences;
    core.take_left(sequences);
    return sequences;
  }
  void come_back() {
    std::vector<RowRun> runs;
    core.take_returns(runs);
    core.returns_copied(runs, now);
  }

  HopCore core{{.slots = 3, .ring_rows = 4, .hop_rows = 3, .last_stage = 2, .attempts = 3}};
  Watchdog watchdog{{.age = seconds(1)}};
  int64_t given_up = 0;
  Nanos now{0};
  HopTask a, b;
};

TEST_F(WatchdogTest, CountsAnAttemptThatHangsOnce) {
  EXPECT_TRUE(core.task_done(b.hop, b.attempt));
  EXPECT_THAT(look_at(seconds(1)), testing::SizeIs(1));
  const HopTask again = next();
  EXPECT_TRUE(core.task_done(again.hop, again.attempt));
  for (int quarter = 5; quarter < 40; ++quarter) {
    look_at(milliseconds(250) * quarter);  // the first attempt still holds its row
  }
  EXPECT_EQ(given_up, 1);
}

TEST_F(WatchdogTest, LeavesThoseAloneThatAreInTime) {
  EXPECT_THAT(look_at(milliseconds(999)), IsEmpty());
  EXPECT_TRUE(nothing_due());
}

TEST_F(WatchdogTest, TriesAHungHopElsewhereAndGoesOn) {
  EXPECT_TRUE(core.task_done(b.hop, 0));
  const std::vector<HopTask> dropped = look_at(seconds(1));
  ASSERT_EQ(dropped.size(), 1U);
  EXPECT_EQ(dropped[0].hop, a.hop);
  EXPECT_EQ(dropped[0].attempt, 0);
  const HopTask again = next();
  EXPECT_EQ(again.attempt, 1);
  EXPECT_TRUE(core.task_done(again.hop, 1));
  come_back();
  EXPECT_EQ(core.ready(1), 2);
  EXPECT_FALSE(core.task_done(a.hop, 0)) << "late";
  EXPECT_THAT(failed(), IsEmpty());
}

TEST_F(WatchdogTest, IsMorePatientWithEachAttemptAndThenGivesUpThatSequenceAlone) {
  EXPECT_TRUE(core.task_done(b.hop, 0));
  look_at(seconds(1));
  EXPECT_EQ(next().attempt, 1);
  EXPECT_THAT(look_at(milliseconds(2999)), IsEmpty());
  EXPECT_EQ(look_at(seconds(3)).size(), 1U);
  EXPECT_EQ(next().attempt, 2);
  EXPECT_THAT(look_at(milliseconds(6999)), IsEmpty());
  EXPECT_EQ(look_at(seconds(7)).size(), 1U);
  EXPECT_EQ(look_at(seconds(8)).size(), 3U) << "all of them hold its row";
  EXPECT_EQ(HopCoreView(core).tokens(), 1);
  EXPECT_THAT(failed(), IsEmpty()) << "three workers may still write";
  EXPECT_EQ(HopCoreView(core).quarantined(), 1);
  come_back();
  EXPECT_EQ(core.ready(1), 1) << "B goes on";
  EXPECT_FALSE(core.task_done(a.hop, 2));
  EXPECT_FALSE(core.task_failed(a.hop, 0));
  EXPECT_THAT(failed(), IsEmpty());
  EXPECT_FALSE(core.task_done(a.hop, 1));
  EXPECT_THAT(failed(), ElementsAre(kFirst));
  EXPECT_THAT(left(), IsEmpty()) << "it is reported once";
}

TEST_F(WatchdogTest, CountsThrowsAndHangsOfAHopTogether) {
  EXPECT_TRUE(core.task_failed(a.hop, 0));
  EXPECT_EQ(next().attempt, 1);
  EXPECT_TRUE(core.task_done(b.hop, 0));
  look_at(seconds(2));
  EXPECT_EQ(next().attempt, 2);
  EXPECT_TRUE(core.task_failed(a.hop, 2));
  EXPECT_THAT(failed(), IsEmpty()) << "its second attempt is still out";
  EXPECT_FALSE(core.task_failed(a.hop, 1));
  EXPECT_THAT(failed(), ElementsAre(kFirst));
}

TEST_F(WatchdogTest, ALateAnswerSavesTheHopWhileItsSecondAttemptHangsToo) {
  EXPECT_TRUE(core.task_done(b.hop, 0));
  look_at(seconds(1));
  const HopTask again = next();
  EXPECT_TRUE(core.task_done(a.hop, 0));
  come_back();
  EXPECT_EQ(core.ready(1), 2);
  EXPECT_THAT(look_at(seconds(60)), IsEmpty());
  EXPECT_FALSE(core.task_done(again.hop, 1)) << "twice, in effect";
}

TEST_F(WatchdogTest, DropsTheAttemptOfASequenceThatLeft) {
  EXPECT_TRUE(core.task_done(b.hop, 0));
  EXPECT_TRUE(core.leave(kFirst));
  EXPECT_THAT(look_at(milliseconds(999)), IsEmpty());
  const std::vector<HopTask> dropped = look_at(seconds(1));
  ASSERT_EQ(dropped.size(), 1U);
  EXPECT_EQ(dropped[0].hop, a.hop);
  EXPECT_EQ(dropped[0].attempt, 0);
  EXPECT_TRUE(nothing_due());
  EXPECT_FALSE(core.task_failed(a.hop, 0));
  EXPECT_THAT(left(), ElementsAre(kFirst));
  EXPECT_THAT(look_at(seconds(9)), IsEmpty());
}

TEST_F(WatchdogTest, WhenAllWorkersAreGoneNobodyWaitsForEver) {
  ASSERT_TRUE(core.enter(SequenceId{3}, 0, 0, now));
  std::vector<Visit> visits;
  core.bind(0, 1, 2, visits);
  ASSERT_EQ(visits.size(), 1U);
  core.exits_copied({&visits[0].hop, 1});
  next();
  std::vector<HopTask> dropped;
  for (now = seconds(0); now <= seconds(60); now += milliseconds(250)) {
    for (const HopTask& task : look_at(now)) {
      dropped.push_back(task);
    }
    HopTask task;
    while (core.next_task(now, task)) {
    }
  }
  EXPECT_EQ(HopCoreView(core).tokens(), 0);
  EXPECT_EQ(HopCoreView(core).quarantined(), 3);
  EXPECT_EQ(core.credits(0), 0);
  // As the workers do for attempts that no kernel works on, once each.
  for (const HopTask& task : dropped) {
    EXPECT_FALSE(core.task_failed(task.hop, task.attempt));
  }
  EXPECT_THAT(failed(), testing::UnorderedElementsAre(kFirst, kSecond, SequenceId{3}));
  EXPECT_EQ(core.credits(0), 3);
}

TEST_F(WatchdogTest, AnAttemptThatNeverAnswersIsGivenUpAndItsRowStaysOutOfUse) {
  HopCore one({.slots = 1, .ring_rows = 1, .hop_rows = 2, .last_stage = 2, .attempts = 2});
  ASSERT_TRUE(one.enter(kFirst, 0, 70, now));
  std::vector<Visit> visits;
  one.bind(0, 1, 1, visits);
  one.exits_copied({&visits[0].hop, 1});
  HopTask task;
  ASSERT_TRUE(one.next_task(now, task));
  std::vector<HopTask> dropped;
  std::vector<HopTask> lost;
  std::vector<SequenceId> gone;
  for (now = seconds(0); now <= seconds(60) && lost.empty(); now += milliseconds(250)) {
    static_cast<void>(watchdog.check(now, one, dropped));
    one.take_failed(gone);
    EXPECT_THAT(gone, IsEmpty()) << "while the attempt may still write";
    watchdog.check_lost(now, one, lost);
    HopTask next_try;
    while (one.next_task(now, next_try)) {
      EXPECT_TRUE(one.task_failed(next_try.hop, next_try.attempt));
    }
  }
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].sequence, kFirst);
  EXPECT_EQ(lost[0].attempt, 0);
  EXPECT_EQ(lost[0].position, 70);
  one.take_failed(gone);
  EXPECT_THAT(gone, ElementsAre(kFirst));
  EXPECT_EQ(HopCoreView(one).lost(), 1);
  EXPECT_EQ(HopCoreView(one).free_slots(), 1);
  EXPECT_EQ(HopCoreView(one).free_hop_rows(), 1);
  ASSERT_TRUE(one.audit().ok()) << one.audit().error().message;
  // The slot is another's now, and the late answer is not taken for its.
  ASSERT_TRUE(one.enter(kSecond, 0, 0, now));
  visits.clear();
  one.bind(0, 1, 2, visits);
  one.exits_copied({&visits[0].hop, 1});
  HopTask other;
  ASSERT_TRUE(one.next_task(now, other));
  EXPECT_FALSE(one.task_done(task.hop, 0));
  EXPECT_EQ(HopCoreView(one).lost(), 0);
  EXPECT_EQ(HopCoreView(one).free_hop_rows(), 1);
  EXPECT_TRUE(one.task_done(other.hop, other.attempt));
  EXPECT_TRUE(one.audit().ok());
}

TEST_F(WatchdogTest, FailsThoseThatWaitForRowsWhichOnlyGoneWorkersHold) {
  // A result is ready, but the row that holds it may still be written by its first attempt, and the
  // other rows are with workers too.
  HopCore one({.slots = 2, .ring_rows = 1, .hop_rows = 1, .last_stage = 2, .attempts = 2});
  ASSERT_TRUE(one.enter(kFirst, 0, 0, now) && one.enter(kSecond, 0, 0, now));
  std::vector<Visit> visits;
  one.bind(0, 2, 1, visits);
  ASSERT_EQ(visits.size(), 1U);
  one.exits_copied({&visits[0].hop, 1});
  HopTask task;
  ASSERT_TRUE(one.next_task(now, task));
  std::vector<HopTask> dropped;
  static_cast<void>(watchdog.check(seconds(1), one, dropped));
  ASSERT_TRUE(one.next_task(seconds(1), task));
  ASSERT_TRUE(one.task_done(task.hop, 1));
  std::vector<RowRun> runs;
  one.take_returns(runs);
  one.returns_copied(runs, seconds(1));
  visits.clear();
  one.bind(1, 2, 2, visits);
  EXPECT_THAT(visits, IsEmpty()) << "the only row is not safe to be used again";
  static_cast<void>(watchdog.check(seconds(2), one, dropped));
  EXPECT_EQ(HopCoreView(one).tokens(), 2);
  static_cast<void>(watchdog.check(seconds(5), one, dropped));
  EXPECT_EQ(HopCoreView(one).tokens(), 0);
  std::vector<SequenceId> gone;
  one.take_failed(gone);
  EXPECT_THAT(gone, ElementsAre(kSecond));
  EXPECT_FALSE(one.task_done(task.hop, 0));
  one.take_failed(gone);
  EXPECT_THAT(gone, ElementsAre(kSecond, kFirst)) << "its worker is back";
  EXPECT_TRUE(one.audit().ok());
}

}  // namespace
}  // namespace tandem::piggyback
