#include "piggyback/core/hop_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/hop_core_view.h"

namespace tandem::piggyback {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr HopLimits kLimits{.slots = 4, .ring_rows = 4, .hop_rows = 8, .last_stage = 2};
constexpr SequenceId kA{10};
constexpr SequenceId kB{11};

// A HopCore with the moves of a test in one line each.
class Hops : public testing::Test {
 protected:
  ~Hops() override {
    const Status audit = core.audit();
    EXPECT_TRUE(audit.ok()) << audit.error().message;
  }

  std::vector<Visit> bind(int32_t stage, int32_t limit = 100) {
    std::vector<Visit> visits;
    core.bind(stage, limit, ++ticket, visits);
    return visits;
  }
  Visit bind_one(int32_t stage) {
    const std::vector<Visit> visits = bind(stage, 1);
    CHECK(visits.size() == 1);
    return visits[0];
  }
  void exit(const Visit& visit) { core.exits_copied({&visit.hop, 1}); }
  HopTask next() {
    HopTask task;
    CHECK(core.next_task(now, task));
    return task;
  }
  void come_back() {
    std::vector<RowRun> runs;
    core.take_returns(runs);
    core.returns_copied(runs, now);
  }
  // From a bind to ready at the next stage.
  void go_round(const Visit& visit) {
    exit(visit);
    ASSERT_TRUE(core.task_done(next().hop, 0));
    come_back();
  }
  std::vector<SequenceId> left() {
    std::vector<SequenceId> sequences;
    core.take_left(sequences);
    return sequences;
  }
  std::vector<SequenceId> failed() {
    std::vector<SequenceId> sequences;
    core.take_failed(sequences);
    return sequences;
  }

  HopCore core{kLimits};
  Nanos now{0};
  int64_t ticket = 0;
};

TEST_F(Hops, ATokenVisitsEveryStageOnceAndRests) {
  ASSERT_TRUE(core.enter(kA, 7, 100, now));
  EXPECT_EQ(core.ready(0), 1);
  const Visit first = bind_one(0);
  EXPECT_EQ(first.sequence, kA);
  EXPECT_EQ(first.token, 7);
  EXPECT_EQ(first.position, 100);
  EXPECT_EQ(first.return_row, -1);
  EXPECT_EQ(core.in_flight(), 1);
  exit(first);
  const HopTask task = next();
  EXPECT_EQ(task.layer, 0);
  EXPECT_EQ(task.hop_row, first.hop_row);
  EXPECT_TRUE(core.task_done(task.hop, task.attempt));
  come_back();
  EXPECT_EQ(core.ready(1), 1);
  EXPECT_EQ(HopCoreView(core).ready_from(0), 1);
  EXPECT_EQ(core.in_flight(), 0);
  const Visit second = bind_one(1);
  EXPECT_EQ(second.return_row, first.hop_row);
  EXPECT_NE(second.hop_row, first.hop_row);
  EXPECT_NE(second.hop, first.hop);
  EXPECT_EQ(HopCoreView(core).free_hop_rows(), 6) << "what is being consumed is not free";
  core.group_done(ticket);
  EXPECT_EQ(HopCoreView(core).free_hop_rows(), 7);
  go_round(second);
  const Visit last = bind_one(2);
  EXPECT_EQ(last.hop_row, -1);
  EXPECT_EQ(last.ring_row, -1);
  EXPECT_EQ(last.return_row, second.hop_row);
  EXPECT_EQ(HopCoreView(core).tokens(), 0);
  EXPECT_TRUE(core.enter(kA, 8, 101, now)) << "it kept its slot";
  EXPECT_EQ(HopCoreView(core).free_slots(), 3);
  core.group_done(ticket);
  EXPECT_EQ(HopCoreView(core).free_hop_rows(), 8);
}

TEST_F(Hops, VisitorsOfAGroupLeaveInOneCopy) {
  for (int64_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(core.enter(SequenceId{i}, 0, 0, now));
  }
  EXPECT_FALSE(HopCoreView(core).free_slots() > 0);
  EXPECT_FALSE(core.enter(SequenceId{9}, 0, 0, now));
  const std::vector<Visit> visits = bind(0);
  ASSERT_EQ(visits.size(), 4U);
  std::vector<ExitRun> runs;
  HopCore::exit_runs(visits, runs);
  EXPECT_THAT(runs, ElementsAre(ExitRun{0, 0, 4}));
  EXPECT_EQ(core.credits(0), 0);
  for (const Visit& visit : visits) {
    exit(visit);
  }
  std::vector<HopTask> tasks(4);
  for (HopTask& task : tasks) {
    task = next();
  }
  for (const int i : {3, 0, 1}) {
    EXPECT_TRUE(core.task_done(tasks[static_cast<size_t>(i)].hop, 0));
  }
  std::vector<RowRun> back;
  core.take_returns(back);
  EXPECT_THAT(back, ElementsAre(RowRun{0, 2}, RowRun{3, 1}));
  core.returns_copied(back, now);
  EXPECT_EQ(core.ready(1), 3);
}

TEST_F(Hops, ARingThatGoesRoundIsTwoCopies) {
  for (int64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(core.enter(SequenceId{i}, 0, 0, now));
  }
  for (const Visit& visit : bind(0)) {
    exit(visit);
    ASSERT_TRUE(core.task_done(next().hop, 0));
  }
  come_back();
  const std::vector<Visit> visits = bind(1);
  std::vector<ExitRun> runs;
  HopCore::exit_runs(visits, runs);
  EXPECT_THAT(runs, ElementsAre(ExitRun{3, 3, 1}, ExitRun{0, 4, 2}));
}

TEST_F(Hops, TheOneThatWaitedLongestGoesFirst) {
  ASSERT_TRUE(core.enter(kB, 0, 0, Nanos{5}));
  ASSERT_TRUE(core.enter(kA, 0, 0, Nanos{9}));
  EXPECT_EQ(HopCoreView(core).oldest_ready(0), Nanos{5});
  EXPECT_EQ(bind_one(0).sequence, kB);
  EXPECT_EQ(HopCoreView(core).oldest_ready(0), Nanos{9});
  EXPECT_EQ(bind_one(0).sequence, kA);
  EXPECT_EQ(HopCoreView(core).oldest_ready(0), std::nullopt);
}

TEST_F(Hops, AnswersThatComeLateTwiceOrFromAnotherGenerationChangeNothing) {
  ASSERT_TRUE(core.enter(kA, 0, 0, now));
  const Visit visit = bind_one(0);
  EXPECT_FALSE(core.task_done(visit.hop, 0)) << "not handed out";
  exit(visit);
  EXPECT_FALSE(core.task_done(visit.hop, 0)) << "not handed out";
  const HopTask task = next();
  EXPECT_FALSE(core.task_done({task.hop.slot, task.hop.generation + 1}, 0));
  EXPECT_FALSE(core.task_done({3, 1}, 0));
  EXPECT_FALSE(core.task_done({-1, 0}, 0));
  EXPECT_FALSE(core.task_done({4, 0}, 0));
  EXPECT_FALSE(core.task_done(task.hop, 1));
  EXPECT_FALSE(core.task_done(task.hop, -1));
  EXPECT_FALSE(core.task_done(task.hop, 32));
  EXPECT_TRUE(core.task_done(task.hop, 0));
  EXPECT_FALSE(core.task_done(task.hop, 0)) << "twice";
  EXPECT_FALSE(core.task_failed(task.hop, 0)) << "twice";
  come_back();
  EXPECT_FALSE(core.task_done(task.hop, 0)) << "late";
  const Visit next_visit = bind_one(1);
  EXPECT_FALSE(core.task_done(task.hop, 0)) << "of an old generation";
  EXPECT_EQ(HopCoreView(core).ready_from(0), 0);
  EXPECT_NE(next_visit.hop_row, visit.hop_row);
}

TEST_F(Hops, AFailedTaskIsDueAgainAtOnce) {
  ASSERT_TRUE(core.enter(kA, 0, 0, now));
  exit(bind_one(0));
  HopTask task = next();
  EXPECT_TRUE(core.task_failed(task.hop, 0));
  EXPECT_FALSE(core.task_failed(task.hop, 0)) << "twice";
  task = next();
  EXPECT_EQ(task.attempt, 1);
  EXPECT_TRUE(core.task_done(task.hop, 1));
  come_back();
  EXPECT_EQ(core.ready(1), 1);
}

TEST_F(Hops, ASequenceWhoseAttemptsAreUsedUpFailsAlone) {
  ASSERT_TRUE(core.enter(kA, 0, 0, now));
  ASSERT_TRUE(core.enter(kB, 0, 0, now));
  for (const Visit& visit : bind(0)) {
    exit(visit);
  }
  const HopTask a = next();
  EXPECT_TRUE(core.task_done(next().hop, 0));
  for (int32_t attempt = 0; attempt < 3; ++attempt) {
    EXPECT_TRUE(core.task_failed(a.hop, attempt));
    if (attempt < 2) {
      EXPECT_EQ(next().attempt, attempt + 1);
    }
  }
  EXPECT_THAT(failed(), ElementsAre(kA));
  EXPECT_THAT(left(), IsEmpty()) << "it is reported once";
  come_back();
  EXPECT_EQ(core.ready(1), 1) << "B goes on";
  EXPECT_EQ(HopCoreView(core).free_slots(), 3);
}

TEST_F(Hops, AFailedSequenceThatIsToldToLeaveMeanwhileLeaves) {
  ASSERT_TRUE(core.enter(kA, 0, 0, now));
  exit(bind_one(0));
  const HopTask task = next();
  EXPECT_TRUE(core.retry(task.hop));
  EXPECT_EQ(next().attempt, 1);
  EXPECT_TRUE(core.retry(task.hop));
  EXPECT_EQ(next().attempt, 2);
  EXPECT_FALSE(core.retry(task.hop)) << "attempts are used up";
  EXPECT_EQ(HopCoreView(core).tokens(), 0);
  EXPECT_TRUE(core.leave(kA));
  EXPECT_FALSE(core.leave(kA));
  for (const int32_t attempt : {2, 0, 1}) {
    EXPECT_THAT(left(), IsEmpty());
    EXPECT_FALSE(core.task_failed(task.hop, attempt));
  }
  EXPECT_THAT(left(), ElementsAre(kA));
  EXPECT_THAT(failed(), IsEmpty());
}

TEST_F(Hops, AFailureThatNobodyHasTakenTurnsIntoALeave) {
  ASSERT_TRUE(core.enter(kA, 0, 0, now));
  exit(bind_one(0));
  for (int32_t attempt = 0; attempt < 3; ++attempt) {
    EXPECT_TRUE(core.task_failed(next().hop, attempt));
  }
  EXPECT_EQ(HopCoreView(core).free_slots(), 4);
  EXPECT_TRUE(core.leave(kA));
  EXPECT_FALSE(core.leave(kA));
  EXPECT_THAT(failed(), IsEmpty());
  EXPECT_THAT(left(), ElementsAre(kA));
}

TEST_F(Hops, ARowWhoseFirstAttemptHangsIsNotUsedAgainWhileItsSequenceGoesOn) {
  ASSERT_TRUE(core.enter(kA, 0, 0, now));
  const Visit first = bind_one(0);
  exit(first);
  const HopTask hung = next();
  EXPECT_TRUE(core.retry(hung.hop));
  EXPECT_FALSE(core.retry(hung.hop)) << "it is due already";
  const HopTask again = next();
  EXPECT_EQ(again.attempt, 1);
  EXPECT_EQ(again.hop_row, hung.hop_row);
  EXPECT_TRUE(core.task_done(again.hop, 1));
  come_back();
  const Visit second = bind_one(1);
  core.group_done(ticket);
  EXPECT_EQ(HopCoreView(core).quarantined(), 1);
  go_round(second);
  bind_one(2);
  core.group_done(ticket);
  EXPECT_EQ(HopCoreView(core).free_hop_rows(), 7)
      << "the row of the first hop waits for its worker";
  EXPECT_TRUE(core.leave(kA));
  EXPECT_THAT(left(), IsEmpty()) << "the worker may still append to its blocks";
  EXPECT_FALSE(core.task_done(hung.hop, 0));
  EXPECT_EQ(HopCoreView(core).quarantined(), 0);
  EXPECT_EQ(HopCoreView(core).free_hop_rows(), 8);
  EXPECT_THAT(left(), ElementsAre(kA));
}

TEST_F(Hops, TheFirstGoodAnswerCountsWhicheverAttemptGaveIt) {
  ASSERT_TRUE(core.enter(kA, 0, 0, now));
  exit(bind_one(0));
  const HopTask slow = next();
  EXPECT_TRUE(core.retry(slow.hop));
  EXPECT_TRUE(core.task_done(slow.hop, 0)) << "before the second attempt began";
  HopTask task;
  EXPECT_FALSE(core.next_task(now, task));
  come_back();
  const Visit visit = bind_one(1);
  exit(visit);
  const HopTask first = next();
  EXPECT_TRUE(core.retry(first.hop));
  const HopTask second = next();
  EXPECT_TRUE(core.task_done(first.hop, 0));
  EXPECT_FALSE(core.task_done(second.hop, 1));
  come_back();
  EXPECT_EQ(core.ready(2), 1);
}

TEST_F(Hops, AMovedTokenWaitsAtTheEndOfItsNewLane) {
  ASSERT_TRUE(core.enter(kA, 0, 0, Nanos{1}, 0));
  ASSERT_TRUE(core.enter(kB, 0, 0, Nanos{2}, 1));
  EXPECT_TRUE(core.move_lane(kA, 1));
  EXPECT_TRUE(core.move_lane(kA, 1)) << "it is there";
  EXPECT_EQ(core.ready(0, 0), 0);
  EXPECT_EQ(core.ready(0, 1), 2);
  EXPECT_EQ(HopCoreView(core).oldest_ready(0), Nanos{1}) << "it has waited no shorter";
  EXPECT_TRUE(core.audit().ok());
  std::vector<Visit> visits;
  core.bind_lane(0, 1, 2, ++ticket, visits);
  ASSERT_EQ(visits.size(), 2U);
  EXPECT_EQ(visits[0].sequence, kB);
  EXPECT_EQ(visits[1].sequence, kA);
}

TEST_F(Hops, AMovedTokenOnItsWayArrivesInItsNewLane) {
  ASSERT_TRUE(core.enter(kA, 0, 0, now, 0));
  const Visit visit = bind_one(0);
  for (int32_t point = 0; point < 4; ++point) {  // exiting, due, working, done
    EXPECT_TRUE(core.move_lane(kA, 1 - point % 2));
    EXPECT_EQ(core.coming(1, 1 - point % 2), 1);
    EXPECT_EQ(core.coming(1, point % 2), 0);
    EXPECT_TRUE(core.audit().ok());
    if (point == 0) {
      exit(visit);
    } else if (point == 1) {
      ASSERT_EQ(next().hop, visit.hop);
    } else if (point == 2) {
      ASSERT_TRUE(core.task_done(visit.hop, 0));
    }
  }
  EXPECT_TRUE(core.move_lane(kA, 1));
  come_back();
  EXPECT_EQ(core.ready(1, 1), 1);
  EXPECT_EQ(core.coming(1), 0);
}

TEST_F(Hops, ThoseOnTheirWayFromBeforeAGroupAreCounted) {
  for (const SequenceId sequence : {kA, kB}) {
    ASSERT_TRUE(core.enter(sequence, 0, 0, now));
  }
  const Visit first = bind_one(0);
  const int64_t second_ticket = ticket + 1;
  const Visit second = bind_one(0);
  EXPECT_EQ(core.coming_from_before(1, second_ticket), 1);
  EXPECT_EQ(core.coming_from_before(1, second_ticket + 1), 2);
  ASSERT_TRUE(core.move_lane(first.sequence, 1));
  ASSERT_TRUE(core.move_lane(second.sequence, 1));
  EXPECT_EQ(core.coming_from_before(1, second_ticket), 1);
  ASSERT_TRUE(core.leave(second.sequence));
  EXPECT_EQ(core.coming_from_before(1, second_ticket + 1), 1);
  EXPECT_EQ(core.coming_from_before(1, second_ticket), 1);
  ASSERT_TRUE(core.leave(first.sequence));
  EXPECT_EQ(core.coming_from_before(1, second_ticket), 0);
  EXPECT_TRUE(core.audit().ok());
}

TEST_F(Hops, OnlyATokenUnderWayChangesItsLane) {
  EXPECT_FALSE(core.move_lane(kA, 1)) << "it never entered";
  ASSERT_TRUE(core.enter(kA, 0, 0, now));
  const Visit visit = bind_one(0);
  EXPECT_TRUE(core.leave(kA));
  EXPECT_FALSE(core.move_lane(kA, 1)) << "it leaves";
  exit(visit);
  EXPECT_THAT(left(), ElementsAre(kA));
  EXPECT_DEATH(static_cast<void>(core.move_lane(kA, 2)), "lane 2 of 2");
}

TEST_F(Hops, LeavingWhileWaitingIsImmediate) {
  ASSERT_TRUE(core.enter(kA, 0, 0, now));
  EXPECT_TRUE(core.leave(kA));
  EXPECT_FALSE(core.leave(kA));
  EXPECT_FALSE(core.leave(kB));
  EXPECT_THAT(left(), ElementsAre(kA));
  EXPECT_EQ(core.ready(0), 0);
  ASSERT_TRUE(core.enter(kA, 0, 0, now)) << "it may come again";
}

TEST_F(Hops, LeavingAtEveryPointOfAHopWaitsForWhatIsOutAndNoLonger) {
  // How far the hop has come when its sequence leaves, and what is still to come.
  for (int point = 0; point < 7; ++point) {
    ASSERT_TRUE(core.enter(kA, 0, 0, now));
    const Visit visit = bind_one(0);
    HopTask task;
    std::vector<RowRun> runs;
    const auto leave_at = [&](int here) {
      if (point == here) {
        EXPECT_TRUE(core.leave(kA));
      }
    };
    leave_at(0);  // exiting
    EXPECT_THAT(left(), IsEmpty());
    exit(visit);
    leave_at(1);  // due
    if (point >= 2) {
      task = next();
      leave_at(2);  // working
      EXPECT_THAT(left(), IsEmpty());
      EXPECT_EQ(core.task_done(task.hop, 0), point > 2);
      leave_at(3);  // done
      if (point >= 4) {
        core.take_returns(runs);
        leave_at(4);  // returning
        EXPECT_THAT(left(), IsEmpty());
        core.returns_copied(runs, now);
        leave_at(5);  // ready
        if (point == 6) {
          const Visit second = bind_one(1);
          leave_at(6);  // consumed, and the next hop is exiting
          exit(second);
          EXPECT_THAT(left(), IsEmpty());
          core.group_done(ticket);
        }
      }
    }
    EXPECT_THAT(left(), ElementsAre(kA)) << "point " << point;
    EXPECT_EQ(HopCoreView(core).free_slots(), 4);
    EXPECT_EQ(HopCoreView(core).free_hop_rows(), 8);
    EXPECT_EQ(HopCoreView(core).free_ring_rows(), 4);
    EXPECT_EQ(core.in_flight(), 0);
    EXPECT_FALSE(core.next_task(now, task));
  }
}

TEST_F(Hops, ALastVisitHoldsItsSequenceUntilItsGroupIsDone) {
  ASSERT_TRUE(core.enter(kA, 0, 0, now));
  go_round(bind_one(0));
  go_round(bind_one(1));
  bind_one(2);
  EXPECT_TRUE(core.leave(kA));
  EXPECT_THAT(left(), IsEmpty());
  core.group_done(ticket - 1);
  EXPECT_THAT(left(), IsEmpty());
  core.group_done(ticket);
  EXPECT_THAT(left(), ElementsAre(kA));
}

TEST(HopCore, ASingleHopRowIsTakenOverFromHopToHop) {
  HopCore core({.slots = 1, .ring_rows = 1, .hop_rows = 1, .last_stage = 3});
  ASSERT_TRUE(core.enter(kA, 0, 0, Nanos{0}));
  for (int32_t stage = 0; stage < 3; ++stage) {
    std::vector<Visit> visits;
    core.bind(stage, 1, stage, visits);
    ASSERT_EQ(visits.size(), 1U);
    EXPECT_EQ(visits[0].hop_row, 0);
    EXPECT_EQ(visits[0].return_row, stage == 0 ? -1 : 0);
    core.exits_copied({&visits[0].hop, 1});
    HopTask task;
    ASSERT_TRUE(core.next_task(Nanos{0}, task));
    ASSERT_TRUE(core.task_done(task.hop, 0));
    std::vector<RowRun> runs;
    core.take_returns(runs);
    core.returns_copied(runs, Nanos{0});
    ASSERT_TRUE(core.audit().ok()) << core.audit().error().message;
  }
}

using HopCoreDeath = Hops;

TEST_F(HopCoreDeath, BrokenContractsStopTheProcess) {
  EXPECT_DEATH(HopCore({.slots = 0, .ring_rows = 1, .hop_rows = 1, .last_stage = 1}), "0 slots");
  ASSERT_TRUE(core.enter(kA, 0, 0, now));
  EXPECT_DEATH(static_cast<void>(core.enter(kA, 0, 1, now)), "sequence 10 enters");
  ASSERT_TRUE(core.enter(kB, 0, 0, now));
  const std::vector<Visit> visits = bind(0);
  EXPECT_DEATH(exit(visits[1]), "ring row 1 is released");
  exit(visits[0]);
  EXPECT_DEATH(exit(visits[0]), "which is not on its way");
  const RowRun run{0, 1};
  EXPECT_DEATH(core.returns_copied({&run, 1}, now), "was not on its way");
  EXPECT_DEATH(static_cast<void>(core.ready(3)), "stage 3 of 2");
  std::vector<Visit> none;
  EXPECT_DEATH(core.bind(0, 1, ticket - 1, none), "ticket 0 after 1");
}

}  // namespace
}  // namespace tandem::piggyback
