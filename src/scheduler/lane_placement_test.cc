#include "scheduler/lane_placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "latency/modular_model.h"

namespace tandem {
namespace {

using std::chrono::microseconds;

constexpr int32_t kPlacedLayers = 2;

const latency::ModularModel& placement_model() {
  static const latency::ModularModel made = latency::simple_model(
      {.layers = kPlacedLayers, .per_row = microseconds(20), .per_context_nanos = 200});
  return made;
}

// One microsecond of a layer for each token of context.
const latency::HostTimes& host() {
  static const latency::HostTimes times = [] {
    latency::HostTimes made;
    made.attention.per_context_nanos = 1000;
    return made;
  }();
  return times;
}

Lanes residents(int32_t decodes, int64_t context) {
  Lanes lanes;
  for (int32_t i = 0; i < decodes; ++i) {
    lanes[0].residents.add_decode(context);
  }
  return lanes;
}

std::vector<HostDecode> decodes_of(const std::vector<int64_t>& contexts) {
  std::vector<HostDecode> decodes;
  for (const int64_t context : contexts) {
    decodes.push_back({.context = context});
  }
  return decodes;
}

// The lanes with decode i where the i-th digit of `way`, to the base 3, says: out, first, second.
Lanes arranged(const Lanes& start, const std::vector<HostDecode>& decodes, int way) {
  Lanes lanes = start;
  for (const HostDecode& decode : decodes) {
    if (way % 3 > 0) {
      Lane& lane = lanes[static_cast<size_t>(way % 3 - 1)];
      ++lane.visitors;
      lane.context += decode.context;
    }
    way /= 3;
  }
  return lanes;
}

int64_t visitors_of(const Lanes& lanes) { return lanes[0].visitors + lanes[1].visitors; }

// The largest number of decodes whose host attention hides, of all ways to place them.
int64_t largest_hidden(const LaneModel& model, const Lanes& start,
                       const std::vector<HostDecode>& decodes) {
  int ways = 1;
  for (size_t i = 0; i < decodes.size(); ++i) {
    ways *= 3;
  }
  int64_t largest = 0;
  for (int way = 0; way < ways; ++way) {
    const Lanes lanes = arranged(start, decodes, way);
    if (model.slack(lanes).least() >= Nanos{0}) {
      largest = std::max(largest, visitors_of(lanes));
    }
  }
  return largest;
}

void expect_consistent(const Placement& placement, const Lanes& start,
                       const std::vector<HostDecode>& decodes) {
  ASSERT_EQ(placement.lane.size(), decodes.size());
  Lanes lanes = start;
  int64_t placed = 0;
  for (size_t i = 0; i < decodes.size(); ++i) {
    if (placement.lane[i] != kHeld) {
      Lane& lane = lanes[static_cast<size_t>(placement.lane[i])];
      ++lane.visitors;
      lane.context += decodes[i].context;
      ++placed;
    }
  }
  EXPECT_EQ(placement.placed, placed);
  for (size_t lane = 0; lane < 2; ++lane) {
    EXPECT_EQ(placement.lanes[lane].visitors, lanes[lane].visitors);
    EXPECT_EQ(placement.lanes[lane].context, lanes[lane].context);
  }
}

constexpr int64_t kLong = 1000;
constexpr PlacementLimits kAll{.decodes = 1000};

class EachWindow : public ::testing::TestWithParam<LaneWindows> {};
INSTANTIATE_TEST_SUITE_P(Windows, EachWindow,
                         ::testing::Values(LaneWindows::kPaper, LaneWindows::kCode,
                                           LaneWindows::kReal));

// Equal lengths: nothing is lost by taking one after the other.
TEST_P(EachWindow, AsManyDecodesOfOneLengthJoinAsAnyPlacementHides) {
  const LaneModel lanes(placement_model(), &host(), GetParam());
  int placed = 0;
  for (int32_t rows = 1; rows <= 40; rows += 3) {
    for (int64_t length = 10; length <= 200; length += 35) {
      const Lanes start = residents(rows, 40);
      const std::vector<HostDecode> decodes = decodes_of(std::vector<int64_t>(7, length));
      const int64_t best = largest_hidden(lanes, start, decodes);
      const Placement first_come = place_first_come(lanes, start, decodes, kAll);
      expect_consistent(first_come, start, decodes);
      EXPECT_EQ(first_come.placed, best) << rows << " rows, length " << length;
      EXPECT_EQ(place_by_slack(lanes, start, decodes, kAll).placed, best);
      placed += static_cast<int>(best);
    }
  }
  EXPECT_GT(placed, 50) << "the cases are not all too tight";
}

// Any lengths: the host is always hidden, nothing beats the best placement, and who sits out does
// so by the rule.
TEST_P(EachWindow, OfAnyLengthsTheHostStaysHiddenAndTheRuleSaysWhoSitsOut) {
  const LaneModel lanes(placement_model(), &host(), GetParam());
  std::mt19937 random(7);
  int64_t of_best = 0;
  int64_t by_slack = 0;
  for (int round = 0; round < 300; ++round) {
    const Lanes start = residents(static_cast<int32_t>(random() % 30), 40);
    std::vector<HostDecode> decodes;
    for (int i = 0; i < 6; ++i) {
      decodes.push_back({.context = 5 + static_cast<int64_t>(random() % 150)});
    }
    const int64_t best = largest_hidden(lanes, start, decodes);
    const Placement first_come = place_first_come(lanes, start, decodes, kAll);
    const Placement slack = place_by_slack(lanes, start, decodes, kAll);
    for (const Placement* placement : {&first_come, &slack}) {
      expect_consistent(*placement, start, decodes);
      EXPECT_GE(lanes.slack(placement->lanes).least(), Nanos{0});
      EXPECT_LE(placement->placed, best);
    }
    int64_t shortest_out = kLong;
    for (size_t i = 0; i < decodes.size(); ++i) {
      EXPECT_FALSE(first_come.lane[i] != kHeld && decodes[i].context >= shortest_out)
          << "a decode as long as one that sits out does, too";
      if (first_come.lane[i] == kHeld) {
        shortest_out = std::min(shortest_out, decodes[i].context);
      }
    }
    of_best += best;
    by_slack += slack.placed;
  }
  EXPECT_GE(by_slack * 10, of_best * 8) << "first come gives four fifths of the best";
}

TEST(LanePlacement, TheFirstGoesToTheSecondLaneAndThenTheRoomierLane) {
  const LaneModel lanes(placement_model(), &host(), LaneWindows::kPaper);
  // Windows: 200 us for the second lane; for the first one 100 us and 10 for each row of the other.
  const Placement placement =
      place_first_come(lanes, residents(20, 50), decodes_of({60, 60, 60, 60}), kAll);
  EXPECT_EQ(placement.lane, (std::vector<int8_t>{1, 1, 0, 1}));
}

TEST(LanePlacement, OverdueDecodesThatDoNotHideJoinOneAtATimeAndForABoundedTime) {
  const LaneModel lanes(placement_model(), &host(), LaneWindows::kReal);
  const Lanes start = residents(4, 10);
  std::vector<HostDecode> decodes = decodes_of({1000, 1000, 5});
  decodes[0].overdue = true;
  decodes[1].overdue = true;
  const Placement hidden = place_by_slack(lanes, start, decodes, kAll);
  EXPECT_EQ(hidden.lane[0], kHeld);
  EXPECT_EQ(hidden.lane[1], kHeld);
  EXPECT_NE(hidden.lane[2], kHeld) << "the others lose nothing";
  EXPECT_EQ(hidden.for_overdue, Nanos{0});
  PlacementLimits limits = kAll;
  limits.for_overdue = Nanos::max();
  const Placement longer = place_by_slack(lanes, start, decodes, limits);
  EXPECT_NE(longer.lane[0], kHeld);
  EXPECT_EQ(longer.lane[1], kHeld);
  EXPECT_NE(longer.lane[2], kHeld);
  EXPECT_EQ(longer.for_overdue, lanes.layer_time(lanes.times(longer.lanes)) -
                                    lanes.layer_time(lanes.times(hidden.lanes)));
  limits.for_overdue = longer.for_overdue - Nanos{1};
  EXPECT_EQ(place_by_slack(lanes, start, decodes, limits).lane[0], kHeld);
}

// ---------------------------------------------------------------- waiting for the host

// The link takes 6 us of each lane's window.
const latency::HostTimes& far_host() {
  static const latency::HostTimes times = [] {
    latency::HostTimes made = host();
    made.to_host = {.alpha_nanos = 6000, .beta_nanos = 0};
    made.hop = {.to_host = 1, .from_host = 0};
    return made;
  }();
  return times;
}

double value_of(const LaneModel& model, const Lanes& lanes, double tokens_per_nano) {
  const Nanos layer = model.layer_time(model.times(lanes));
  return static_cast<double>(visitors_of(lanes)) -
         tokens_per_nano * static_cast<double>(layer.count());
}

// The best value of all placements of the decodes that `hidden` holds, within the price's limit.
double best_value(const LaneModel& model, const Placement& hidden,
                  const std::vector<HostDecode>& decodes, const WaitingPrice& price) {
  std::vector<HostDecode> held;
  int ways = 1;
  for (size_t i = 0; i < decodes.size(); ++i) {
    if (hidden.lane[i] == kHeld) {
      held.push_back(decodes[i]);
      ways *= 3;
    }
  }
  double best = value_of(model, hidden.lanes, price.tokens_per_nano);
  for (int way = 0; way < ways; ++way) {
    const Lanes lanes = arranged(hidden.lanes, held, way);
    if (model.layer_time(model.times(lanes)) <= price.layer_time) {
      best = std::max(best, value_of(model, lanes, price.tokens_per_nano));
    }
  }
  return best;
}

// A layer may take 60 us more than with the hidden decodes.
WaitingPrice price_beyond(const LaneModel& model, const Placement& hidden, double tokens_per_nano) {
  return {.tokens_per_nano = tokens_per_nano,
          .layer_time = model.layer_time(model.times(hidden.lanes)) + microseconds(60)};
}

TEST(LanePlacement, DecodesOfOneLengthForWhichTheAcceleratorWaitsGiveTheBestValue) {
  const LaneModel lanes(placement_model(), &far_host(), LaneWindows::kReal);
  int64_t more = 0;
  for (int32_t rows = 1; rows <= 16; rows += 3) {
    for (int64_t length = 3; length <= 60; length += 8) {
      for (const double tokens : {0.0, 2e-5, 1e-4, 1.0}) {
        const Lanes start = residents(rows, 40);
        const std::vector<HostDecode> decodes = decodes_of(std::vector<int64_t>(7, length));
        const Placement hidden = place_by_slack(lanes, start, decodes, kAll);
        const WaitingPrice price = price_beyond(lanes, hidden, tokens);
        const Placement waiting = place_while_worth_waiting(lanes, hidden, decodes, 7, price);
        expect_consistent(waiting, start, decodes);
        EXPECT_LE(lanes.layer_time(lanes.times(waiting.lanes)), price.layer_time);
        EXPECT_GE(value_of(lanes, waiting.lanes, tokens),
                  best_value(lanes, hidden, decodes, price) - 0.05)
            << rows << " rows, length " << length << ", " << tokens << " tokens/ns";
        if (tokens == 1.0) {
          EXPECT_EQ(waiting.lane, hidden.lane) << "no token is worth any time";
        }
        more += waiting.placed - hidden.placed;
      }
    }
  }
  EXPECT_GT(more, 50);
}

// Each lane's way is 6 us of the link and 20 us for each decode, in a layer of 10 us for each row.
TEST(LanePlacement, TwoDecodesJoinWhereOneAloneIsNotWorthTheTime) {
  const LaneModel lanes(placement_model(), &far_host(), LaneWindows::kReal);
  const Lanes start = residents(4, 40);
  const std::vector<HostDecode> decodes = decodes_of(std::vector<int64_t>(12, 20));
  const Placement hidden = place_by_slack(lanes, start, decodes, kAll);
  const auto with = [&](int64_t more, double tokens_per_nano) {
    return place_while_worth_waiting(
               lanes, hidden, decodes, hidden.placed + more,
               {.tokens_per_nano = tokens_per_nano, .layer_time = Nanos::max()})
        .placed;
  };
  const Nanos before = lanes.layer_time(lanes.times(hidden.lanes));
  const Placement single = place_while_worth_waiting(lanes, hidden, decodes, hidden.placed + 1,
                                                     {.layer_time = Nanos::max()});
  const Placement pair = place_while_worth_waiting(lanes, hidden, decodes, hidden.placed + 2,
                                                   {.layer_time = Nanos::max()});
  const auto for_single =
      static_cast<double>((lanes.layer_time(lanes.times(single.lanes)) - before).count());
  const auto for_pair =
      static_cast<double>((lanes.layer_time(lanes.times(pair.lanes)) - before).count());
  ASSERT_LT(for_pair, 2 * for_single);
  const double between = (1 / for_single + 2 / for_pair) / 2;
  EXPECT_EQ(with(1, between), hidden.placed);
  EXPECT_EQ(with(2, between), hidden.placed + 2);
  EXPECT_EQ(with(2, 2.1 / for_pair), hidden.placed);
}

// Long decodes come first in the order. The first makes the layer too long; two more fit alone and
// are not worth their time.
TEST(LanePlacement, ShorterDecodesJoinBehindDecodesThatAreTooLong) {
  const LaneModel lanes(placement_model(), &far_host(), LaneWindows::kReal);
  const Lanes start = residents(4, 40);
  const auto joining = [&](const std::vector<int64_t>& contexts) {
    const std::vector<HostDecode> decodes = decodes_of(contexts);
    const Placement hidden = place_by_slack(lanes, start, decodes, kAll);
    const Placement waiting =
        place_while_worth_waiting(lanes, hidden, decodes, 20, price_beyond(lanes, hidden, 2e-5));
    expect_consistent(waiting, start, decodes);
    return std::pair(hidden.placed, waiting.placed);
  };
  std::vector<int64_t> contexts(12, 20);
  const auto [hidden, waiting] = joining(contexts);
  EXPECT_GT(waiting, hidden);
  contexts.insert(contexts.begin(), 100'000);
  EXPECT_EQ(joining(contexts), std::pair(hidden, waiting));
  contexts.insert(contexts.begin() + 1, {54, 53});
  EXPECT_EQ(joining(contexts), std::pair(hidden, waiting));
}

TEST(LanePlacement, DecodesOfAnyLengthGiveMostOfTheBestValue) {
  const LaneModel lanes(placement_model(), &far_host(), LaneWindows::kReal);
  std::mt19937 random(5);
  double gain = 0;
  double best_gain = 0;
  for (int world = 0; world < 300; ++world) {
    const Lanes start = residents(1 + static_cast<int32_t>(random() % 16), 40);
    std::vector<HostDecode> decodes(7);
    for (HostDecode& decode : decodes) {
      decode.context = 3 + static_cast<int64_t>(random() % 60);
    }
    const Placement hidden = place_by_slack(lanes, start, decodes, kAll);
    const double tokens = 1e-5 * static_cast<double>(random() % 10);
    const WaitingPrice price = price_beyond(lanes, hidden, tokens);
    const Placement waiting = place_while_worth_waiting(lanes, hidden, decodes, 7, price);
    expect_consistent(waiting, start, decodes);
    EXPECT_LE(lanes.layer_time(lanes.times(waiting.lanes)), price.layer_time);
    const double before = value_of(lanes, hidden.lanes, tokens);
    EXPECT_GE(value_of(lanes, waiting.lanes, tokens), before);
    gain += value_of(lanes, waiting.lanes, tokens) - before;
    best_gain += best_value(lanes, hidden, decodes, price) - before;
  }
  EXPECT_GT(gain, 0.86 * best_gain);
}

TEST(LanePlacement, AllJoinWhateverTheHostTakes) {
  const LaneModel lanes(placement_model(), &host(), LaneWindows::kPaper);
  const Placement placement =
      place_whatever_it_takes(lanes, residents(4, 10), decodes_of({100'000, 5, 100'000}));
  EXPECT_EQ(placement.placed, 3);
  EXPECT_NE(placement.lane[0], placement.lane[1]) << "each in the lane with more slack";
}

TEST(LanePlacement, NoMoreJoinThanThereAreRowsFor) {
  const LaneModel lanes(placement_model(), nullptr, LaneWindows::kCode);
  const std::vector<HostDecode> decodes = decodes_of({1, 1, 1, 1, 1});
  EXPECT_EQ(place_first_come(lanes, residents(5, 5), decodes, {.decodes = 3}).placed, 3);
  EXPECT_EQ(place_by_slack(lanes, residents(5, 5), decodes, {.decodes = 2}).placed, 2);
  const Placement all = place_all(lanes, {}, decodes);
  EXPECT_EQ(all.lane, (std::vector<int8_t>{0, 1, 0, 1, 0})) << "in turn";
}

TEST(LanePlacement, NoDecodeMakesTheLayerLongerThanItsLimit) {
  const LaneModel lanes(placement_model(), &host(), LaneWindows::kReal);
  std::vector<HostDecode> decodes = decodes_of({1, 1, 1, 1, 1});
  decodes[4].overdue = true;
  const Lanes start = residents(20, 50);  // 300 us; each decode is 10 us more
  for (const auto place : {place_first_come, place_by_slack}) {
    const Placement placement =
        place(lanes, start, decodes, {.decodes = 9, .layer_time = microseconds(325)});
    EXPECT_EQ(placement.placed, 2);
    EXPECT_LE(lanes.layer_time(lanes.times(placement.lanes)), microseconds(325));
  }
}

}  // namespace
}  // namespace tandem
