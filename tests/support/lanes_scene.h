// For tests of policies that plan lanes: views made by hand, and beliefs that can be reckoned with.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "latency/corrected_model.h"
#include "latency/host_times.h"
#include "latency/modular_model.h"
#include "plan/decisions.h"
#include "plan/views.h"

namespace tandem::testing {

// Of a layer: 10 us for each row, 100 ns for each token that a decode attends to.
inline const latency::CorrectedModel& model() {
  static const latency::CorrectedModel made(std::make_unique<latency::ModularModel>(
      latency::simple_model({.layers = 4,
                             .fixed = std::chrono::microseconds(100),
                             .per_row = std::chrono::microseconds(40),
                             .per_context_nanos = 400})));
  return made;
}

// A layer's attention on the host takes so long for each token of context.
inline latency::HostTimes host_of(double per_context_nanos) {
  latency::HostTimes host;
  host.attention.per_context_nanos = per_context_nanos;
  return host;
}

inline constexpr int32_t kBlock = 16;
inline int32_t blocks_of(int32_t tokens) { return (tokens + kBlock - 1) / kBlock; }

inline SequenceView decode(int64_t id, int32_t known) {
  const int32_t held = blocks_of(known - 1);
  return {.id = SequenceId{id},
          .request = RequestId{id},
          .state = SequenceState::kDecoding,
          .known_tokens = known,
          .computed_tokens = known - 1,
          .held_blocks = held,
          .own_blocks = held,
          .transfer_blocks = held};
}

inline SequenceView parked(int64_t id, int32_t known) {
  SequenceView view = decode(id, known);
  view.state = SequenceState::kParkedWaiting;
  view.tier = Tier::kHost;
  return view;
}

// A token under way whose next stage is `stage`.
inline SequenceView in_flight(int64_t id, int32_t known, int32_t stage, uint8_t lane = 0) {
  SequenceView view = parked(id, known);
  view.state = SequenceState::kParkedInFlight;
  view.stage = stage;
  view.lane = lane;
  return view;
}

inline SequenceView prompt(int64_t id, int32_t known) {
  return {.id = SequenceId{id}, .request = RequestId{id}, .known_tokens = known};
}

inline SequenceView best_effort(SequenceView view) {
  view.service_class = ServiceClass::kBestEffort;
  return view;
}

struct Scene {
  std::vector<SequenceView> running;
  std::vector<SequenceView> offloaded;
  std::vector<SequenceView> waiting;
  StepBudget budget{.tokens = 512,
                    .logit_rows = 64,
                    .sequences = 32,
                    .free_blocks = 100,
                    .total_blocks = 200,
                    .host_free_blocks = 1000,
                    .host_total_blocks = 1000,
                    .block_tokens = kBlock};
  [[nodiscard]] SystemView view() const {
    return {.running = running, .offloaded = offloaded, .waiting = waiting, .budget = budget};
  }
};

inline std::vector<int64_t> ids(const std::vector<SequenceId>& sequences) {
  std::vector<int64_t> numbers;
  for (const SequenceId id : sequences) {
    numbers.push_back(raw(id));
  }
  return numbers;
}

inline std::vector<std::pair<int64_t, int32_t>> slices(const StepPlan& plan) {
  std::vector<std::pair<int64_t, int32_t>> made;
  for (const StepPlan::Slice& slice : plan.slices) {
    made.emplace_back(raw(slice.sequence), slice.tokens);
  }
  return made;
}

// Eight residents of 1,000 tokens: a layer has 80 us of dense work and 800 us of attention. The
// offloaded sequences find too few blocks to return.
inline Scene with_residents(std::vector<SequenceView> offloaded) {
  Scene scene;
  for (int64_t id = 1; id <= 8; ++id) {
    scene.running.push_back(decode(id, 1000));
  }
  scene.offloaded = std::move(offloaded);
  scene.budget.free_blocks = 9;
  return scene;
}

}  // namespace tandem::testing
