#include "device/sim/shared_bandwidth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace tandem::device {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::Pair;

class SharedBandwidths : public ::testing::Test {
 protected:
  SharedBandwidth::User user(const std::string& name) {
    return shared_.add_user({.done =
                                 [this, name](int64_t number, Nanos /*began*/) {
                                   done_.emplace_back(name + std::to_string(number),
                                                      time_.now() / milliseconds(1));
                                 },
                             .worked = [this](Nanos begin, Nanos end) { worked_ += end - begin; }});
  }
  static SharedBandwidth::Job job(int64_t number, int64_t ready, int64_t alone, int64_t memory) {
    return {.number = number,
            .ready = milliseconds(ready),
            .alone = milliseconds(alone),
            .memory = milliseconds(memory)};
  }
  void run_all() {
    while (time_.step()) {
    }
  }

  VirtualTime time_;
  SharedBandwidth shared_{time_};
  std::vector<std::pair<std::string, int64_t>> done_;  // and when, in milliseconds
  Nanos worked_{0};
};

TEST_F(SharedBandwidths, JobsOfOneUserFollowEachOtherInTheTimeThatTheyTakeAlone) {
  const auto a = user("a");
  shared_.submit(a, job(1, 0, 300, 300));
  shared_.submit(a, job(2, 100, 40, 10));
  shared_.submit(a, job(3, 500, 7, 0));
  shared_.submit(a, job(4, 500, 0, 0));
  run_all();
  EXPECT_THAT(done_,
              ElementsAre(Pair("a1", 300), Pair("a2", 340), Pair("a3", 507), Pair("a4", 507)));
  EXPECT_EQ(worked_, Nanos{milliseconds(347)});
}

TEST_F(SharedBandwidths, TwoThatNeedAllOfItGetHalf) {
  shared_.submit(user("a"), job(1, 0, 100, 100));
  shared_.submit(user("b"), job(1, 0, 300, 300));
  run_all();
  // Until 200 both have half, then b is alone with the 200 that are left.
  EXPECT_THAT(done_, ElementsAre(Pair("a1", 200), Pair("b1", 400)));
}

TEST_F(SharedBandwidths, WhatAJobDoesNotNeedIsForTheOthers) {
  shared_.submit(user("a"), job(1, 0, 100, 25));  // needs a quarter: is not slowed down
  shared_.submit(user("b"), job(1, 0, 90, 90));   // gets three quarters for 100: 75 are done
  run_all();
  EXPECT_THAT(done_, ElementsAre(Pair("a1", 100), Pair("b1", 115)));
}

TEST_F(SharedBandwidths, JobsThatFitTogetherSlowNothingDown) {
  shared_.submit(user("a"), job(1, 0, 100, 50));
  shared_.submit(user("b"), job(1, 20, 100, 50));
  run_all();
  EXPECT_THAT(done_, ElementsAre(Pair("a1", 100), Pair("b1", 120)));
}

TEST_F(SharedBandwidths, TheOrderOfUsersDoesNotMatter) {
  const auto times = [](bool swapped) {
    VirtualTime time;
    SharedBandwidth shared(time);
    std::vector<Nanos> ends(2);
    const auto add = [&](size_t index) {
      return shared.add_user(
          {.done = [&ends, &time, index](int64_t, Nanos) { ends[index] = time.now(); },
           .worked = {}});
    };
    const auto first = add(swapped ? 1 : 0);
    const auto second = add(swapped ? 0 : 1);
    shared.submit(swapped ? second : first, job(1, 0, 130, 110));
    shared.submit(swapped ? first : second, job(1, 0, 170, 90));
    while (time.step()) {
    }
    return ends;
  };
  EXPECT_EQ(times(false), times(true));
}

TEST_F(SharedBandwidths, LongWorkIsReportedWhileItGoesOn) {
  shared_.submit(user("a"), job(1, 0, 2000, 2000));
  while (time_.now() < Nanos{seconds(1)} && time_.step()) {
    EXPECT_GE(worked_, time_.now() - SharedBandwidth::kReport);
  }
  EXPECT_LE(worked_, time_.now());
}

TEST_F(SharedBandwidths, AUserThatIsRemovedIsNotHeardOfAndSlowsNothingDown) {
  const auto a = user("a");
  shared_.submit(a, job(1, 0, 100, 100));
  shared_.remove_user(a);
  shared_.submit(user("b"), job(1, 0, 100, 100));
  run_all();
  EXPECT_THAT(done_, ElementsAre(Pair("b1", 100)));
}

}  // namespace
}  // namespace tandem::device
