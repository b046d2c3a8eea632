#include "scheduler/lane_times.h"

#include <algorithm>

#include "base/check.h"

namespace tandem {
namespace {

// Its offloaded tokens visit all stages. `has_lanes`: the step, so that both lanes are corrected by
// factors of steps with lanes.
latency::StepShape shape_of(const Lane& lane, int32_t layers, bool has_lanes) {
  latency::StepShape shape = lane.residents;
  shape.has_lanes = has_lanes;
  shape.visits += lane.visitors * layers;
  shape.visitor_logits += static_cast<int32_t>(lane.visitors);
  return shape;
}

latency::StepParts known_parts(const latency::StepTimeModel& model,
                               const latency::StepShape& shape) {
  const std::optional<latency::StepParts> parts = model.parts(shape);
  CHECK(parts.has_value(), "the step-time model {} has no parts", model.name());
  return *parts;
}

}  // namespace

Nanos LaneSlack::least() const { return std::min({of_lane[0], of_lane[1], of_both}); }

LaneTimes LaneModel::times(const Lane& lane, bool has_lanes) const {
  LaneTimes times;
  if (lane.rows() == 0) {
    return times;
  }
  const latency::StepParts parts = known_parts(model_, shape_of(lane, model_.layers(), has_lanes));
  times.dense = parts.dense;
  times.attention = parts.prefill_attention + parts.decode_attention;
  times.decode_attention = parts.decode_attention;
  if (host_ != nullptr && lane.visitors > 0) {
    times.host = host_->attention_time(lane.visitors, lane.context);
    times.link = windows_ == LaneWindows::kReal ? host_->link_time(lane.visitors) : Nanos{0};
    const latency::LaunchTimes& launch = host_->launch;
    times.launch = Nanos{static_cast<int64_t>(
        launch.per_lane_stage_nanos + launch.per_visit_nanos * static_cast<double>(lane.visitors))};
  }
  return times;
}

LaneSlack LaneModel::slack(const LayerTimes& times) const {
  const LaneTimes& first = times[0];
  const LaneTimes& second = times[1];
  std::array<Nanos, 2> window{second.dense + first.attention - first.launch,
                              first.dense - second.launch};
  if (windows_ == LaneWindows::kPaper) {
    window = {second.dense + first.decode_attention, first.dense};
  } else if (windows_ == LaneWindows::kReal) {
    window[1] += first.attention;
  }
  LaneSlack slack;
  for (size_t lane = 0; lane < times.size(); ++lane) {
    slack.of_lane[lane] = window[lane] - times[lane].host - times[lane].link;
  }
  slack.of_both = windows_ == LaneWindows::kReal
                      ? first.dense + first.attention + second.dense - first.host - second.host
                      : Nanos::max();
  return slack;
}

Nanos LaneModel::layer_time(const LayerTimes& times) const {
  const LaneTimes& first = times[0];
  const LaneTimes& second = times[1];
  if (windows_ != LaneWindows::kReal) {
    return std::max(first.dense, second.host) +
           std::max(second.dense + first.attention, first.host);
  }
  return std::max({first.dense + first.attention + second.dense, first.host + second.host,
                   first.dense + first.host + first.link + first.launch,
                   second.dense + second.host + second.link + second.launch});
}

Nanos LaneModel::layers_time(const Lane& residents) const {
  CHECK(residents.visitors == 0, "a step without lanes has {} visitors in one", residents.visitors);
  const LaneTimes layer = times(residents);
  return model_.layers() * (layer.dense + layer.attention);
}

// The second lane has a last stage of its own.
Nanos LaneModel::beside_layers(const Lanes& lanes) const {
  const bool any = lanes[0].visitors + lanes[1].visitors > 0;
  Nanos fixed{0};
  Nanos beside{0};
  for (const Lane& lane : lanes) {
    if (lane.rows() > 0) {
      const latency::StepParts parts = known_parts(model_, shape_of(lane, model_.layers(), any));
      fixed = std::max(fixed, parts.fixed);
      beside += parts.head + parts.visits;
    }
  }
  return fixed + beside;
}

}  // namespace tandem
