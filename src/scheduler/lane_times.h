// What a step with two lanes takes, by the parts of a layer (NEO 3.2): which of its times the host
// has for the attention of each lane's offloaded tokens, and how much of that it leaves.
//
// The first lane (0) has the residents and some offloaded tokens, the second (1) offloaded tokens
// only. Of a layer, per lane x: T_l_x its dense stage, by all of its rows; T_pa0, T_ga0 attention
// of prompts and of resident decodes on the accelerator; T_ca_x attention of its offloaded tokens
// on the host; T_la_x what launching its stage takes.
//
// Plain values and pure functions; any thread. A question costs about 0.2 us.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "latency/host_times.h"
#include "latency/step_shape.h"
#include "latency/step_time_model.h"

namespace tandem {

// In which time the host must have attended.
//
//              first lane's tokens, T_ca0          second lane's tokens, T_ca1
//   kPaper     T_l1 + T_ga0                        T_l0
//   kCode      T_l1 + T_pa0 + T_ga0 - T_la0        T_l0 - T_la1
//   kReal      T_l1 + T_pa0 + T_ga0 - T_la0 - T_k0 T_l0 + T_pa0 + T_ga0 - T_la1 - T_k1
//
// kPaper is what NEO prints and kCode what its authors' program computes. kReal is what the steps
// here give: attention of residents runs behind the first lane's dense stage, so it is in the
// window of both lanes, and T_k_x, the way of the lane's rows over the link and back, which the
// other two leave out, is not the host's to attend in. As the host attends for one lane after the
// other, kReal also asks that T_ca0 + T_ca1 be at most what the accelerator takes for the layer.
enum class LaneWindows : uint8_t { kPaper, kCode, kReal };

struct Lane {
  latency::StepShape residents;  // empty in the second lane
  int64_t visitors = 0;          // offloaded tokens
  int64_t context = 0;           // tokens that these attend to
  [[nodiscard]] int64_t rows() const { return residents.rows() + visitors; }
};
using Lanes = std::array<Lane, 2>;

// Of one layer.
struct LaneTimes {
  Nanos dense{0};
  Nanos attention{0};         // of residents: prompts and decodes
  Nanos decode_attention{0};  // of these, of decodes
  Nanos host{0};
  Nanos link{0};  // of its offloaded tokens' rows to the host and back
  Nanos launch{0};
};
using LayerTimes = std::array<LaneTimes, 2>;

// How much less than its window the host takes; negative: more.
struct LaneSlack {
  std::array<Nanos, 2> of_lane{};
  // Of both lanes together; as `of_lane`, so that it never decides, where windows have no sum.
  Nanos of_both{0};
  [[nodiscard]] Nanos least() const;
};

class LaneModel {
 public:
  // `model` must outlive it and have parts. `host`: null if the host's times are not known; it
  // then counts as taking none.
  LaneModel(const latency::StepTimeModel& model, const latency::HostTimes* host,
            LaneWindows windows)
      : model_(model), host_(host), windows_(windows) {}

  // Of one lane; without visitors, of a step without lanes.
  [[nodiscard]] LaneTimes times(const Lane& lane) const { return times(lane, lane.visitors > 0); }
  [[nodiscard]] LayerTimes times(const Lanes& lanes) const {
    const bool any = lanes[0].visitors + lanes[1].visitors > 0;
    return {times(lanes[0], any), times(lanes[1], any)};
  }
  [[nodiscard]] LaneSlack slack(const LayerTimes& times) const;
  [[nodiscard]] LaneSlack slack(const Lanes& lanes) const { return slack(times(lanes)); }

  // A layer of a step with these lanes. kPaper and kCode: max(T_l0, T_ca1) + max(T_l1 + T_pa0 +
  // T_ga0, T_ca0), T_tr / L of the paper. kReal: the longest of the accelerator's work, the
  // host's, and each lane's way through both, which holds its rows' way over the link and the
  // launch of its stage.
  [[nodiscard]] Nanos layer_time(const LayerTimes& times) const;
  // All layers, without what a step takes beside them, which NEO leaves out too (T ~ T_tr).
  [[nodiscard]] Nanos layers_time(const Lanes& lanes) const {
    return model_.layers() * layer_time(times(lanes));
  }
  // The same of a step without lanes. Needs a lane without visitors.
  [[nodiscard]] Nanos layers_time(const Lane& residents) const;
  // What the step takes beside its layers: launch and return of results, and the last stage.
  [[nodiscard]] Nanos beside_layers(const Lanes& lanes) const;

  [[nodiscard]] const latency::StepTimeModel& step_times() const { return model_; }

 private:
  [[nodiscard]] LaneTimes times(const Lane& lane, bool has_lanes) const;

  const latency::StepTimeModel& model_;
  const latency::HostTimes* host_;
  LaneWindows windows_;
};

}  // namespace tandem
