#include "scheduler/output_lengths.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(OutputLengths, BeforeAnyAnswerItIsAGuessNoLongerThanAllowed) {
  const OutputLengths lengths;
  EXPECT_EQ(lengths.rest(0, 1000), 256);
  EXPECT_EQ(lengths.rest(0, 20), 20);
  EXPECT_EQ(lengths.rest(19, 20), 1);
}

TEST(OutputLengths, FollowsTheAnswersAndTheirSpread) {
  OutputLengths lengths;
  for (int i = 0; i < 500; ++i) {
    lengths.observe(i % 2 == 0 ? 90 : 110);
  }
  EXPECT_NEAR(lengths.rest(0, 1000), 100, 2);
  EXPECT_NEAR(lengths.rest(60, 1000), 40, 2);
  EXPECT_NEAR(lengths.variance(), 100, 15);
}

TEST(OutputLengths, AnAnswerThatIsLongerThanMostGoesOnForAWhile) {
  OutputLengths lengths;
  for (int i = 0; i < 500; ++i) {
    lengths.observe(100);
  }
  EXPECT_NEAR(lengths.rest(400, 1000), 25, 1);
}

}  // namespace
}  // namespace tandem
