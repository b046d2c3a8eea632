#include "scheduler/lane_placement.h"

#include <limits>
#include <optional>
#include <utility>

namespace tandem {
namespace {

// A placement in the making; keeps the times of both lanes, of which one changes at a time.
class Placing {
 public:
  Placing(const LaneModel& model, const Lanes& lanes, size_t decodes, const PlacementLimits& limits)
      : model_(model), limits_(limits), times_(model.times(lanes)) {
    placement_.lane.assign(decodes, kHeld);
    placement_.lanes = lanes;
  }
  Placing(const LaneModel& model, Placement placement, const PlacementLimits& limits)
      : model_(model),
        limits_(limits),
        times_(model.times(placement.lanes)),
        placement_(std::move(placement)) {}

  [[nodiscard]] size_t roomier_lane() const {
    const LaneSlack slack = model_.slack(times_);
    return slack.of_lane[1] > slack.of_lane[0] ? 1 : 0;
  }

  void place(size_t decode, const HostDecode& what, size_t lane) {
    commit(decode, lane, trial(what, lane));
  }

  // False, and nothing changed: the host would not be done in time, or the layer would be too long.
  bool place_within_slack(size_t decode, const HostDecode& added, size_t lane) {
    const Trial changed = trial(added, lane);
    if (model_.slack(changed.times).least() < Nanos{0} ||
        model_.layer_time(changed.times) > limits_.layer_time) {
      return false;
    }
    commit(decode, lane, changed);
    return true;
  }
  // Nothing changes where the layer would become longer than it may for an overdue one.
  void place_overdue(size_t decode, const HostDecode& added) {
    const size_t lane = roomier_lane();
    const Trial changed = trial(added, lane);
    const Nanos with = model_.layer_time(changed.times);
    const Nanos longer = with - model_.layer_time(times_);
    if (longer <= limits_.for_overdue && with <= limits_.layer_time) {
      placement_.for_overdue = longer;
      commit(decode, lane, changed);
    }
  }

  void take_out(size_t decode, const HostDecode& removed) {
    const auto lane = static_cast<size_t>(std::exchange(placement_.lane[decode], kHeld));
    --placement_.lanes[lane].visitors;
    placement_.lanes[lane].context -= removed.context;
    --placement_.placed;
    times_ = model_.times(placement_.lanes);
  }

  [[nodiscard]] bool is_held(size_t decode) const { return placement_.lane[decode] == kHeld; }
  [[nodiscard]] int64_t placed() const { return placement_.placed; }
  [[nodiscard]] Nanos layer_time() const { return model_.layer_time(times_); }
  [[nodiscard]] bool full() const { return placement_.placed >= limits_.decodes; }
  [[nodiscard]] Placement finish() { return std::move(placement_); }

 private:
  struct Trial {
    Lane lane;
    LayerTimes times;
  };

  [[nodiscard]] Trial trial(const HostDecode& what, size_t lane) const {
    Trial changed{.lane = placement_.lanes[lane], .times = times_};
    ++changed.lane.visitors;
    changed.lane.context += what.context;
    changed.times[lane] = model_.times(changed.lane);
    return changed;
  }
  void commit(size_t decode, size_t lane, const Trial& trial) {
    placement_.lanes[lane] = trial.lane;
    placement_.lane[decode] = static_cast<int8_t>(lane);
    ++placement_.placed;
    times_ = trial.times;
  }

  const LaneModel& model_;
  const PlacementLimits limits_;
  LayerTimes times_;
  Placement placement_;
};

}  // namespace

Placement place_first_come(const LaneModel& model, const Lanes& lanes,
                           std::span<const HostDecode> decodes, const PlacementLimits& limits) {
  Placing placing(model, lanes, decodes.size(), limits);
  int64_t too_long = std::numeric_limits<int64_t>::max();
  size_t lane = 1;
  for (size_t i = 0; i < decodes.size() && !placing.full(); ++i) {
    if (decodes[i].context >= too_long) {
      continue;
    }
    if (placing.place_within_slack(i, decodes[i], lane)) {
      lane = placing.roomier_lane();
    } else {
      too_long = decodes[i].context;
    }
  }
  return placing.finish();
}

Placement place_by_slack(const LaneModel& model, const Lanes& lanes,
                         std::span<const HostDecode> decodes, const PlacementLimits& limits) {
  Placing placing(model, lanes, decodes.size(), limits);
  std::optional<size_t> does_not_hide;  // the first overdue one
  for (size_t i = 0; i < decodes.size() && !placing.full(); ++i) {
    const size_t roomier = placing.roomier_lane();
    const bool placed = placing.place_within_slack(i, decodes[i], roomier) ||
                        placing.place_within_slack(i, decodes[i], 1 - roomier);
    if (!placed && decodes[i].overdue && !does_not_hide.has_value()) {
      does_not_hide = i;
    }
  }
  if (does_not_hide.has_value() && !placing.full()) {
    placing.place_overdue(*does_not_hide, decodes[*does_not_hide]);
  }
  return placing.finish();
}

Placement place_while_worth_waiting(const LaneModel& model, Placement placement,
                                    std::span<const HostDecode> decodes, int64_t max_placed,
                                    const WaitingPrice& price) {
  Placing placing(model, std::move(placement), {.decodes = max_placed});
  const auto value = [&] {
    return static_cast<double>(placing.placed()) -
           price.tokens_per_nano * static_cast<double>(placing.layer_time().count());
  };
  double best = value();
  const size_t none = decodes.size();
  size_t unpaid = none;  // placed, but not worth its time alone
  int64_t too_long = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < decodes.size() && !placing.full(); ++i) {
    if (!placing.is_held(i) || decodes[i].context >= too_long) {
      continue;
    }
    placing.place(i, decodes[i], placing.roomier_lane());
    const bool fits = placing.layer_time() <= price.layer_time;
    if (fits && value() > best) {
      best = value();
      unpaid = none;
      continue;
    }
    if (fits && unpaid == none && !placing.full()) {
      unpaid = i;
      continue;
    }
    placing.take_out(i, decodes[i]);
    if (unpaid == none || decodes[unpaid].context <= decodes[i].context) {
      too_long = decodes[i].context;
      continue;
    }
    too_long = decodes[unpaid].context;
    placing.take_out(unpaid, decodes[unpaid]);
    unpaid = none;
    --i;  // without the longer decode it may pay
  }
  if (unpaid != none) {
    placing.take_out(unpaid, decodes[unpaid]);
  }
  return placing.finish();
}

Placement place_whatever_it_takes(const LaneModel& model, const Lanes& lanes,
                                  std::span<const HostDecode> decodes) {
  Placing placing(model, lanes, decodes.size(), {});
  for (size_t i = 0; i < decodes.size(); ++i) {
    placing.place(i, decodes[i], placing.roomier_lane());
  }
  return placing.finish();
}

Placement place_all(const LaneModel& model, const Lanes& lanes,
                    std::span<const HostDecode> decodes) {
  Placing placing(model, lanes, decodes.size(), {});
  for (size_t i = 0; i < decodes.size(); ++i) {
    placing.place(i, decodes[i], i % 2);
  }
  return placing.finish();
}

}  // namespace tandem
