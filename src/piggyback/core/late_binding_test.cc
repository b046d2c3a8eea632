// What late binding is worth, in the model of tests/support/hop_model.h.
#include <gtest/gtest.h>

#include "support/hop_model.h"

namespace tandem::piggyback {
namespace {

double share(int32_t group_stages, Nanos host_latency, double capacity = 1.25) {
  return HopModel({.group_stages = group_stages,
                   .capacity = capacity,
                   .host_load = 0.9,
                   .host_latency = host_latency,
                   .rounds = 6})
      .run()
      .share;
}

TEST(LateBinding, GroupsOfFourReachTheBoundAndWholeStepsDoNot) {
  using std::chrono::milliseconds;
  EXPECT_GE(share(1, milliseconds(4)), 0.97);
  EXPECT_GE(share(4, milliseconds(4)), 0.965);
  EXPECT_LE(share(33, milliseconds(4)), 0.88);
}

TEST(LateBinding, ALittleRoomAboveTheMeanIsEnough) {
  using std::chrono::milliseconds;
  EXPECT_GE(share(4, milliseconds(4), 1.25), share(4, milliseconds(4), 4.0) - 0.005);
}

}  // namespace
}  // namespace tandem::piggyback
