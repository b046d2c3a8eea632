// Into which lane of a step each offloaded decode goes, or whether it sits the step out. Pure
// functions of the lanes as they are and of the decodes in their order.
//
// Plain functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scheduler/lane_times.h"

namespace tandem {

inline constexpr int8_t kHeld = -1;

struct Placement {
  std::vector<int8_t> lane;  // by decode: 0, 1 or kHeld
  Lanes lanes;               // with those that were placed
  int64_t placed = 0;
  Nanos for_overdue{0};  // added to a layer for an overdue decode that does not hide
};

// An offloaded sequence between two tokens.
struct HostDecode {
  int64_t context = 0;  // tokens that its next token attends to
  bool overdue = false;
};

struct PlacementLimits {
  int64_t decodes = 0;              // that are placed at most
  Nanos layer_time = Nanos::max();  // of a layer with them; for a step within a target
  Nanos for_overdue{0};             // that may be added to a layer for an overdue decode
};

// NEO 3.2, step 4, with the choice of its authors' program. In order, each goes to the lane that
// has more slack, the first one to the second lane. Where a lane's host attention would then be
// longer than its window the sequence sits out, and so does every later one that is at least as
// long: sequences can starve.
Placement place_first_come(const LaneModel& model, const Lanes& lanes,
                           std::span<const HostDecode> decodes, const PlacementLimits& limits);

// The repaired rule. In order, each goes to the lane with more slack, or to the other one if only
// that has room for it. All are tried. Of overdue decodes that hide in neither lane the first is
// placed all the same, behind all others, if the layer becomes longer by no more than
// `for_overdue`.
Placement place_by_slack(const LaneModel& model, const Lanes& lanes,
                         std::span<const HostDecode> decodes, const PlacementLimits& limits);

// The worth of a layer's time, in tokens per nanosecond, and how long a layer may become.
struct WaitingPrice {
  double tokens_per_nano = 0;
  Nanos layer_time{0};
};

// `placement` with further decodes, for which the accelerator waits. In order, each held decode
// goes to the lane with more slack if this gives more tokens than the time that it adds to a layer
// is worth. Sometimes a decode in each lane has to join for that: alone, each makes the layer
// longer without using all of the time that this gives to the host. A decode that makes the layer
// too long or, as the second or in the last place, is not worth its time is left out, and behind it
// only shorter decodes are tried. If the first of two is the longer, that decode is left out and
// the second is tried again.
Placement place_while_worth_waiting(const LaneModel& model, Placement placement,
                                    std::span<const HostDecode> decodes, int64_t max_placed,
                                    const WaitingPrice& price);

// All of them, each in the lane with more slack, whatever the host takes.
Placement place_whatever_it_takes(const LaneModel& model, const Lanes& lanes,
                                  std::span<const HostDecode> decodes);

// All of them, in turn, so that the host attends for one lane while the accelerator has the other;
// for steps in which nothing else happens.
Placement place_all(const LaneModel& model, const Lanes& lanes,
                    std::span<const HostDecode> decodes);

}  // namespace tandem
