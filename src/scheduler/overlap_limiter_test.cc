#include "scheduler/overlap_limiter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace tandem {
namespace {

constexpr int32_t kLimiterLayers = 8;

// Sequences on the host, of whose tokens some go on from view to view.
class Host {
 public:
  explicit Host(int32_t count) : sequences_(static_cast<size_t>(count)) {
    for (int32_t i = 0; i < count; ++i) {
      sequences_[static_cast<size_t>(i)] = {
          .id = SequenceId{100 - i}, .known_tokens = 5, .stage = 0};
    }
  }
  // The next `count`, in turn; a token that is through is followed by the next one.
  void move(int32_t count) {
    for (; count > 0; --count) {
      SequenceView& one = sequences_[next_++ % sequences_.size()];
      one.known_tokens += one.stage == kLimiterLayers ? 1 : 0;
      one.stage = one.stage == kLimiterLayers ? 0 : one.stage + 1;
    }
  }
  void show(OverlapLimiter& limiter) const { limiter.look({.offloaded = sequences_}); }
  std::vector<SequenceView>& sequences() { return sequences_; }

 private:
  std::vector<SequenceView> sequences_;
  size_t next_ = 0;
};

constexpr int64_t kWithout = std::numeric_limits<int32_t>::max();

TEST(OverlapLimiter, AHostThatKeepsUpIsNotLimited) {
  OverlapLimiter limiter;
  Host host(40);
  for (int step = 0; step < 50; ++step) {
    host.show(limiter);
    EXPECT_EQ(limiter.limit(), kWithout) << step;
    limiter.count_step();
    host.move(40);
  }
}

TEST(OverlapLimiter, WhereTheHostTakesTwiceAsLongHalfAsManyRemain) {
  OverlapLimiter limiter;
  constexpr int32_t kCanDo = 20;
  std::vector<int64_t> limits;
  int64_t under_way = 40;
  for (int step = 0; step < 400; ++step) {
    Host host(static_cast<int32_t>(under_way));
    host.show(limiter);
    limiter.count_step();
    host.move(std::min<int32_t>(kCanDo, static_cast<int32_t>(under_way)));
    host.show(limiter);
    under_way = std::min<int64_t>(limiter.limit(), 40);
    limits.push_back(limiter.limit());
  }
  for (size_t step = 50; step < limits.size(); ++step) {
    EXPECT_GE(limits[step], kCanDo - 2);
    EXPECT_LE(limits[step], kCanDo * 3 / 2);
  }
}

TEST(OverlapLimiter, OnlyStepsThatCountAreLearntFrom) {
  OverlapLimiter limiter;
  Host host(40);
  host.show(limiter);
  host.show(limiter);  // nothing has moved, but the step had lanes, or no residents
  EXPECT_EQ(limiter.limit(), kWithout);
  limiter.count_step();
  host.show(limiter);
  EXPECT_EQ(limiter.limit(), 30) << "40 that stand still: a quarter fewer";
  for (int i = 0; i < 100; ++i) {
    limiter.count_step();
    host.show(limiter);
  }
  EXPECT_EQ(limiter.limit(), 30) << "as many are under way as before";
}

TEST(OverlapLimiter, TokensThatHadNoWholeStepDoNotCount) {
  OverlapLimiter limiter;
  Host host(4);
  host.sequences()[0].stage = -1;  // waits for its next token
  host.show(limiter);
  limiter.count_step();
  host.move(4);
  host.sequences()[0].stage = 0;  // has entered since
  host.show(limiter);
  EXPECT_EQ(limiter.limit(), kWithout);
}

TEST(OverlapLimiter, AlwaysLeavesOneAndRecovers) {
  OverlapLimiter limiter;
  for (int64_t under_way = 9; under_way > 1; under_way = limiter.limit()) {
    Host host(static_cast<int32_t>(under_way));
    host.show(limiter);
    limiter.count_step();
    host.show(limiter);
    ASSERT_LT(limiter.limit(), under_way);
  }
  EXPECT_EQ(limiter.limit(), 1);
  Host host(1);
  for (int step = 0; step < 200; ++step) {
    host.show(limiter);
    limiter.count_step();
    host.move(1);
  }
  EXPECT_GT(limiter.limit(), 1000);
}

TEST(OverlapLimiter, WithoutStagesItNeverLimits) {
  OverlapLimiter limiter;
  Host host(6);
  for (SequenceView& sequence : host.sequences()) {
    sequence.stage = -1;
  }
  host.show(limiter);
  limiter.count_step();
  host.show(limiter);
  EXPECT_EQ(limiter.limit(), kWithout);
}

}  // namespace
}  // namespace tandem
