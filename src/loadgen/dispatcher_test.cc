#include "loadgen/dispatcher.h"

#include <gtest/gtest.h>

namespace tandem::loadgen {
namespace {

using std::chrono::milliseconds;

TEST(Dispatcher, RequestsLeaveAtTheirTimesHoweverManyAreUnderWay) {
  Dispatcher dispatcher({milliseconds(0), milliseconds(10), milliseconds(10), milliseconds(30)}, 0);
  EXPECT_EQ(dispatcher.take(Nanos{0})->index, 0);
  EXPECT_FALSE(dispatcher.take(milliseconds(9)));
  EXPECT_EQ(*dispatcher.wake_at(), milliseconds(10));
  EXPECT_EQ(dispatcher.take(milliseconds(12))->at, milliseconds(10)) << "2 ms late";
  EXPECT_EQ(dispatcher.take(milliseconds(12))->index, 2);
  EXPECT_FALSE(dispatcher.take(milliseconds(12)));
  EXPECT_EQ(dispatcher.under_way(), 3);
  EXPECT_EQ(dispatcher.take(milliseconds(30))->index, 3);
  EXPECT_TRUE(dispatcher.all_sent());
  EXPECT_FALSE(dispatcher.wake_at());
}

TEST(Dispatcher, ABoundHoldsRequestsBackAndTheWaitIsNotLateness) {
  Dispatcher dispatcher({milliseconds(0), milliseconds(1), milliseconds(2)}, 2);
  EXPECT_TRUE(dispatcher.take(Nanos{0}));
  EXPECT_TRUE(dispatcher.take(milliseconds(1)));
  EXPECT_FALSE(dispatcher.take(milliseconds(50)));
  EXPECT_FALSE(dispatcher.wake_at()) << "only an end can make room";
  dispatcher.ended(milliseconds(70));
  EXPECT_EQ(dispatcher.take(milliseconds(71))->at, milliseconds(70));
}

TEST(Dispatcher, RoomThatWasThereBeforeDoesNotDelayTheTime) {
  Dispatcher dispatcher({milliseconds(0), milliseconds(100)}, 1);
  EXPECT_TRUE(dispatcher.take(Nanos{0}));
  dispatcher.ended(milliseconds(20));
  EXPECT_EQ(*dispatcher.wake_at(), milliseconds(100));
  EXPECT_EQ(dispatcher.take(milliseconds(100))->at, milliseconds(100));
}

}  // namespace
}  // namespace tandem::loadgen
