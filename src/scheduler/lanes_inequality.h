// Whether a step with two lanes decodes more per time than a step without (APEX 3.2). With T_l and
// T_g a layer's dense stage and its attention for the resident decodes, T_l' and T_g' the same with
// the step's prompts, N_G and N_C the tokens that the accelerator and the host attend to per time
// (the host: for the rows that fit its window),
// lanes pay if
//
//   (N_G T_g + N_C W) / D > N_G T_g / G
//
// where the host attends for the window W of a step with lanes:
//
//                     W                 D                G
//   decodes alone     2 T_l + T_g       2 T_l + T_g      T_l + T_g       inequality (5), (6)
//   mixed, kPrinted   T_l' + T_l + T_g' 2 T_l + T_g      T_l + T_g       Algorithm 1
//   mixed, kReal      T_l' + T_l + T_g' W                T_l' + T_g'     each side over its own
//   step
//
// Solved for the ratio of the two rates: N_G / N_C < W / (T_g (D / G - 1)), which for decodes alone
// is 2 T_l / T_g + 3 + T_g / T_l. The printed form sets the tokens that the host adds against those
// that the accelerator would decode in the extra T_l; docs/decisions/049.
//
// Pure; any thread.
#pragma once

#include <cstdint>

#include "latency/host_times.h"
#include "latency/step_shape.h"
#include "plan/decisions.h"
#include "scheduler/lane_times.h"

namespace tandem {

enum class MixedWindow : uint8_t { kPrinted, kReal };

// Tokens of offloaded sequences.
struct HostRows {
  int64_t rows = 0;
  int64_t context = 0;  // tokens that they attend to
};

// `residents`: the step without offloaded tokens. Without resident decodes the bound is infinite.
// `host`: null if the host's times are not known; the ratio is 0 then.
LanesInequality lanes_inequality(const LaneModel& model, const latency::HostTimes* host,
                                 const latency::StepShape& residents, const HostRows& on_host,
                                 MixedWindow window);

}  // namespace tandem
