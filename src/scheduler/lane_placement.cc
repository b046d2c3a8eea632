#include "scheduler/lane_placement.h"

#include <limits>
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

  [[nodiscard]] size_t roomier_lane() const {
    const LaneSlack slack = model_.slack(times_);
    return slack.of_lane[1] > slack.of_lane[0] ? 1 : 0;
  }

  void place(size_t decode, const HostDecode& what, size_t lane) {
    commit(decode, lane, trial(what, lane));
  }

  // False, and nothing changed: the layer would be too long.
  bool place_within_time(size_t decode, const HostDecode& what, size_t lane) {
    return try_place(decode, what, lane, -Nanos::max());
  }
  // Or the host would not be done in time.
  bool place_within_slack(size_t decode, const HostDecode& what, size_t lane) {
    return try_place(decode, what, lane, Nanos{0});
  }

  [[nodiscard]] bool full() const { return placement_.placed >= limits_.decodes; }
  [[nodiscard]] Placement finish() { return std::move(placement_); }

 private:
  struct Trial {
    Lane lane;
    LayerTimes times;
  };

  bool try_place(size_t decode, const HostDecode& what, size_t lane, Nanos least_slack) {
    const Trial changed = trial(what, lane);
    if (model_.slack(changed.times).least() < least_slack ||
        model_.layer_time(changed.times) > limits_.layer_time) {
      return false;
    }
    commit(decode, lane, changed);
    return true;
  }

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
  for (size_t i = 0; i < decodes.size() && !placing.full(); ++i) {
    const size_t roomier = placing.roomier_lane();
    if (decodes[i].overdue) {
      placing.place_within_time(i, decodes[i], roomier);
    } else if (!placing.place_within_slack(i, decodes[i], roomier)) {
      placing.place_within_slack(i, decodes[i], 1 - roomier);
    }
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
