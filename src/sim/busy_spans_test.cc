#include "sim/busy_spans.h"

#include <gtest/gtest.h>

#include <vector>

#include "workload/random.h"

namespace tandem::sim {
namespace {

std::vector<std::pair<int64_t, int64_t>> pairs_of(const BusySpans& busy) {
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (const BusySpans::Span& span : busy.spans()) {
    pairs.emplace_back(span.begin.count(), span.end.count());
  }
  return pairs;
}

using Pairs = std::vector<std::pair<int64_t, int64_t>>;

TEST(BusySpans, TouchingSpansBecomeOneInWhateverOrderTheyCome) {
  BusySpans busy;
  busy.add(Nanos{10}, Nanos{20});
  busy.add(Nanos{20}, Nanos{30});
  EXPECT_EQ(pairs_of(busy), (Pairs{{10, 30}}));
  busy.add(Nanos{50}, Nanos{60});
  busy.add(Nanos{5}, Nanos{7});
  busy.add(Nanos{40}, Nanos{40});
  EXPECT_EQ(pairs_of(busy), (Pairs{{5, 7}, {10, 30}, {50, 60}}));
  busy.add(Nanos{6}, Nanos{55});
  EXPECT_EQ(pairs_of(busy), (Pairs{{5, 60}}));
}

TEST(BusySides, TimesAreThoseOfTheWindowSinceTheLastCall) {
  BusySides sides;
  sides.accelerator.add(Nanos{0}, Nanos{100});
  sides.begin(Nanos{50});
  sides.host.add(Nanos{80}, Nanos{140});
  sides.accelerator.add(Nanos{130}, Nanos{200});
  BusyTimes times = sides.settle(Nanos{120});
  EXPECT_EQ(times.accelerator, Nanos{50});
  EXPECT_EQ(times.host, Nanos{40});
  EXPECT_EQ(times.both, Nanos{20});
  times = sides.settle(Nanos{190});
  EXPECT_EQ(times.accelerator, Nanos{60});
  EXPECT_EQ(times.host, Nanos{20});
  EXPECT_EQ(times.both, Nanos{10});
  EXPECT_EQ(sides.settle(Nanos{190}).accelerator, Nanos{0});
}

// Against a count of every single nanosecond.
TEST(BusySides, AgreeWithCounting) {
  constexpr size_t kEnd = 2000;
  workload::Random random(3);
  for (int round = 0; round < 50; ++round) {
    BusySides sides;
    std::vector<char> works[2] = {std::vector<char>(kEnd), std::vector<char>(kEnd)};
    for (int i = 0; i < 60; ++i) {
      const auto side = static_cast<size_t>(random.below(2));
      const auto begin = static_cast<size_t>(random.below(kEnd - 60));
      const size_t end = begin + static_cast<size_t>(random.below(60));
      (side == 0 ? sides.accelerator : sides.host)
          .add(Nanos{static_cast<int64_t>(begin)}, Nanos{static_cast<int64_t>(end)});
      std::fill(works[side].begin() + static_cast<int64_t>(begin),
                works[side].begin() + static_cast<int64_t>(end), 1);
    }
    BusyTimes sum;
    for (int64_t until = 0; until < static_cast<int64_t>(kEnd); until += 1 + random.below(300)) {
      sum.add(sides.settle(Nanos{until}));
    }
    sum.add(sides.settle(Nanos{kEnd}));
    int64_t counted[3] = {};
    for (size_t t = 0; t < kEnd; ++t) {
      counted[0] += works[0][t];
      counted[1] += works[1][t];
      counted[2] += works[0][t] * works[1][t];
    }
    EXPECT_EQ(sum.accelerator.count(), counted[0]);
    EXPECT_EQ(sum.host.count(), counted[1]);
    EXPECT_EQ(sum.both.count(), counted[2]);
  }
}

}  // namespace
}  // namespace tandem::sim
