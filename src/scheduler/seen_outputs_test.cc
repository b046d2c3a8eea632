#include "scheduler/seen_outputs.h"

#include <gtest/gtest.h>

#include <vector>

namespace tandem {
namespace {

SequenceView sequence(int64_t id, int32_t known) {
  return {.id = SequenceId{id}, .known_tokens = known};
}

TEST(SeenOutputs, SequencesThatCameAndWentTellHowLongOthersWillBe) {
  SeenOutputs outputs;
  const double before = outputs.rest(sequence(500, 20));
  int64_t step = 0;
  // Two hundred sequences of 11 tokens of output each, every other one on the host.
  for (int64_t id = 1; id <= 200; ++id) {
    for (int32_t output = 0; output <= 10; ++output) {
      const std::vector<SequenceView> shown = {sequence(id, 100 + output)};
      SystemView view{.step = ++step, .running = {}, .offloaded = {}};
      (id % 2 == 0 ? view.running : view.offloaded) = shown;
      outputs.follow(view);
    }
  }
  EXPECT_NEAR(outputs.rest(sequence(500, 20)), 11, 3) << "at first " << before;
  const std::vector<SequenceView> halfway = {sequence(300, 100)};
  outputs.follow({.step = ++step, .running = halfway, .offloaded = {}});
  EXPECT_LT(outputs.rest(sequence(300, 106)), outputs.rest(sequence(300, 101)));
}

TEST(SeenOutputs, ASequenceWithoutOutputTeachesNothing) {
  SeenOutputs outputs;
  const double before = outputs.rest(sequence(2, 20));
  const std::vector<SequenceView> shown = {sequence(1, 100)};
  outputs.follow({.step = 1, .running = shown, .offloaded = {}});
  outputs.follow({.step = 2, .running = {}, .offloaded = {}});
  EXPECT_EQ(outputs.rest(sequence(2, 20)), before);
}

}  // namespace
}  // namespace tandem
