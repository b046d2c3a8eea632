#include "device/emulated/pacer.h"

#include <gtest/gtest.h>

#include "device/emulated/link.h"

namespace tandem::device {
namespace {

constexpr Nanos at(int64_t nanos) { return Nanos{nanos}; }

TEST(Pacer, AnEventCompletesWhenItsOpsWouldHaveEnded) {
  Pacer pacer;
  pacer.not_before(at(1000));
  pacer.charge(at(50), at(1001));
  pacer.charge(at(70), at(1002));
  EXPECT_EQ(pacer.settle(at(1003)), at(1120));
  pacer.completed(at(1120));
  EXPECT_EQ(pacer.overruns(), 0);
  EXPECT_EQ(pacer.lateness(), at(0));
}

TEST(Pacer, ASleepThatEndsLateDoesNotPushBackWhatFollows) {
  Pacer pacer;
  pacer.not_before(at(1000));
  pacer.charge(at(100), at(1001));
  EXPECT_EQ(pacer.settle(at(1001)), at(1100));
  pacer.completed(at(1130));
  pacer.charge(at(10), at(1131));  // its own work is short: it ends late for no fault of its own
  EXPECT_EQ(pacer.settle(at(1132)), at(1110));
  pacer.completed(at(1132));
  pacer.charge(at(90), at(1133));
  EXPECT_EQ(pacer.settle(at(1134)), at(1200));
  EXPECT_EQ(pacer.overruns(), 0);
  EXPECT_EQ(pacer.lateness(), at(30 + 22));
}

TEST(Pacer, ASlowOpThatTheOthersMakeGoodIsNoOverrun) {
  Pacer pacer;
  pacer.not_before(at(1000));
  pacer.charge(at(5), at(1060));
  pacer.charge(at(100), at(1061));
  EXPECT_EQ(pacer.settle(at(1062)), at(1105));
  EXPECT_EQ(pacer.overruns(), 0);
}

TEST(Pacer, OpsThatAnEventSeesEndLateAreOverrunsAndPushBackWhatFollows) {
  Pacer pacer;
  pacer.not_before(at(1000));
  pacer.charge(at(100), at(1010));
  pacer.charge(at(10), at(1200));
  pacer.charge(at(10), at(1300));
  EXPECT_EQ(pacer.settle(at(1301)), at(1301));
  pacer.completed(at(1305));
  EXPECT_EQ(pacer.overruns(), 2);
  EXPECT_EQ(pacer.lateness(), at(1301 - 1120 + 4));
  pacer.charge(at(50), at(1302));
  EXPECT_EQ(pacer.settle(at(1303)), at(1351));
  EXPECT_EQ(pacer.overruns(), 2);
}

TEST(Pacer, AModelThatAsksForNothingIsAlwaysOverrun) {
  Pacer pacer;
  for (int64_t i = 1; i <= 10; ++i) {
    pacer.not_before(at(1000 * i));
    pacer.charge(at(0), at(1000 * i + 100));
    pacer.completed(pacer.settle(at(1000 * i + 101)));
    EXPECT_EQ(pacer.overruns(), i);
  }
}

TEST(Pacer, TimeThatStoodStillIsNotCaughtUp) {
  Pacer pacer;
  pacer.not_before(at(1000));
  pacer.charge(at(10), at(1001));
  pacer.completed(pacer.settle(at(1002)));
  pacer.not_before(at(5000));
  pacer.charge(at(10), at(5001));
  EXPECT_EQ(pacer.settle(at(5002)), at(5010));
}

TEST(Link, CopiesOfOneDirectionGoOneAfterTheOther) {
  Link link(1e9);
  EXPECT_EQ(link.reserve(LinkDirection::kToHost, at(100), at(50)), at(100));
  EXPECT_EQ(link.reserve(LinkDirection::kToHost, at(110), at(50)), at(150));
  EXPECT_EQ(link.reserve(LinkDirection::kToDevice, at(110), at(50)), at(110));
  EXPECT_EQ(link.reserve(LinkDirection::kToHost, at(1000), at(50)), at(1000));
}

TEST(Link, ASharedTransferTakesTwiceItsTimeBesideOthersAndPutsThemOff) {
  Link link(1e9);
  EXPECT_EQ(link.share(LinkDirection::kToDevice, at(100), at(10)), at(10));
  EXPECT_EQ(link.reserve(LinkDirection::kToDevice, at(100), at(1000)), at(110));
  EXPECT_EQ(link.share(LinkDirection::kToDevice, at(200), at(10)), at(20));
  EXPECT_EQ(link.reserve(LinkDirection::kToDevice, at(300), at(50)), at(1120));
  // Nearly alone: only as long as the others still have the link.
  EXPECT_EQ(link.share(LinkDirection::kToDevice, at(1166), at(10)), at(14));
  EXPECT_EQ(link.share(LinkDirection::kToHost, at(200), at(10)), at(10));
}

}  // namespace
}  // namespace tandem::device
