#include "base/virtual_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tandem {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

// Notes what it is told and when; may work each time.
class Noting final : public VirtualTime::Actor {
 public:
  explicit Noting(VirtualTime& time, Nanos work = Nanos{0}) : time_(time), work_(work) {}
  void on_time(int64_t what) override {
    told.push_back(what);
    times.push_back(time_.now());
    time_.spend(work_);
    ends.push_back(time_.now());
  }
  std::vector<int64_t> told;
  std::vector<Nanos> times;
  std::vector<Nanos> ends;

 private:
  VirtualTime& time_;
  const Nanos work_;
};

TEST(VirtualTime, LetsThingsHappenByTimeAndThenByTheirTurn) {
  VirtualTime time;
  Noting actor(time);
  time.ask(milliseconds(5), actor, 1);
  time.ask(milliseconds(2), actor, 2);
  time.ask(milliseconds(5), actor, 3);
  EXPECT_EQ(time.next(), Nanos{milliseconds(2)});
  while (time.step()) {
  }
  EXPECT_THAT(actor.told, ElementsAre(2, 1, 3));
  EXPECT_THAT(actor.times, ElementsAre(milliseconds(2), milliseconds(5), milliseconds(5)));
  EXPECT_EQ(time.next(), Nanos::max());
  EXPECT_EQ(time.steps(), 3);
}

TEST(VirtualTime, WorkOfOneHoldsUpNobodyElse) {
  VirtualTime time;
  Noting slow(time, milliseconds(10));
  Noting other(time);
  time.ask(milliseconds(1), slow, 0);
  time.ask(milliseconds(3), other, 0);
  while (time.step()) {
  }
  EXPECT_THAT(slow.ends, ElementsAre(milliseconds(11)));
  EXPECT_THAT(other.times, ElementsAre(milliseconds(3)));
}

TEST(VirtualTime, WhatIsForgottenDoesNotHappen) {
  VirtualTime time;
  Noting gone(time);
  Noting other(time);
  time.ask(milliseconds(1), gone, 1);
  time.ask(milliseconds(1), other, 2);
  time.ask(milliseconds(3), gone, 3);
  time.ask(milliseconds(1), other, 4);
  time.forget(gone);
  while (time.step()) {
  }
  EXPECT_TRUE(gone.told.empty());
  EXPECT_THAT(other.told, ElementsAre(2, 4));
}

TEST(VirtualTime, WhoWaitsGoesOnFromWhereItsOwnTimeWas) {
  VirtualTime time;
  Noting actor(time);
  time.ask(milliseconds(2), actor, 0);
  time.spend(milliseconds(7));
  EXPECT_TRUE(time.step_until([&] { return !actor.told.empty(); }));
  EXPECT_THAT(actor.times, ElementsAre(milliseconds(2)));
  EXPECT_EQ(time.now(), Nanos{milliseconds(7)});
  EXPECT_FALSE(time.step_until([] { return false; }));
}

}  // namespace
}  // namespace tandem
