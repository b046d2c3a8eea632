#include "bench/two_tier_plans.h"

#include <array>
#include <memory>
#include <span>

#include "base/check.h"
#include "latency/corrected_model.h"
#include "latency/modular_model.h"
#include "scheduler/policies/apex.h"
#include "scheduler/policies/neo.h"

namespace tandem::bench {
namespace {

constexpr int32_t kLayers = 32;
constexpr int32_t kBlockTokens = 32;
constexpr int32_t kStepTokens = 2048;
constexpr int32_t kPrompts = 4;

// Like an 8B model on a small accelerator: steps of 60 ms, and a host that attends at a fifth of
// the accelerator's rate.
latency::CorrectedModel two_tier_step_times() {
  std::vector<latency::LadderPoint> points;
  for (int32_t rows = 1; rows <= kStepTokens; rows *= 2) {
    points.push_back({rows, 3e7 + 4e4 * rows});
  }
  latency::ModularCosts costs;
  costs.layers = kLayers;
  costs.fixed = 3e5;
  costs.first_stage_share = 1.0 / kLayers;
  Result<latency::Ladder> dense = latency::Ladder::through(points);
  CHECK(dense.ok(), "{}", dense.error().message);
  costs.dense = *dense;
  costs.prefill = {.per_pair = 20, .per_row = 100, .per_slice = 2000, .fixed = 1e4};
  costs.decode = {.per_context = 200, .per_row = 300, .fixed = 1e4};
  Result<latency::ModularModel> model = latency::ModularModel::create(std::move(costs));
  CHECK(model.ok(), "{}", model.error().message);
  return latency::CorrectedModel(std::make_unique<latency::ModularModel>(*std::move(model)));
}

latency::HostTimes two_tier_host_times() {
  latency::HostTimes host;
  host.attention = {.per_context_nanos = 30, .per_row_nanos = 500, .fixed_nanos = 20'000};
  host.launch = {.per_group_nanos = 20'000, .per_visit_nanos = 200, .per_lane_stage_nanos = 5000};
  return host;
}

SequenceView sequence(int64_t id, int32_t known) {
  const int32_t blocks = known / kBlockTokens + 1;  // room for the next token
  return {.id = SequenceId{id},
          .request = RequestId{id},
          .state = SequenceState::kDecoding,
          .service_class = ServiceClass::kBestEffort,
          .known_tokens = known,
          .computed_tokens = known - 1,
          .held_blocks = blocks,
          .own_blocks = blocks,
          .transfer_blocks = blocks};
}

// What an engine would show; tokens go on by a stage with each view.
class Views {
 public:
  explicit Views(const TwoTierPlansOptions& options) {
    int64_t id = 1;
    for (int32_t i = 0; i < options.running; ++i, ++id) {
      running_.push_back(sequence(id, 200 + i * 37 % 800));
    }
    for (int32_t i = 0; i < options.offloaded; ++i, ++id) {
      SequenceView& parked = offloaded_.emplace_back(sequence(id, 300 + i * 53 % 900));
      parked.tier = Tier::kHost;
    }
    for (int32_t i = 0; i < kPrompts; ++i, ++id) {
      waiting_.push_back({.id = SequenceId{id},
                          .request = RequestId{id},
                          .service_class = ServiceClass::kBestEffort,
                          .known_tokens = 600});
    }
  }

  SystemView view(int64_t step, bool with_stages) {
    for (size_t i = 0; i < offloaded_.size(); ++i) {
      SequenceView& parked = offloaded_[i];
      const auto place = static_cast<int32_t>((step + static_cast<int64_t>(i)) % (2 * kLayers));
      const bool waits = place >= kLayers;
      parked.state = waits ? SequenceState::kParkedWaiting : SequenceState::kParkedInFlight;
      parked.stage = waits || !with_stages ? -1 : place;
      parked.lane = static_cast<uint8_t>(i % 2);
    }
    const int64_t blocks = 30 * std::ssize(running_);
    return {.now = step * std::chrono::milliseconds(60),
            .step = step,
            .running = running_,
            .offloaded = offloaded_,
            .waiting = waiting_,
            .budget = {.tokens = kStepTokens,
                       .logit_rows = 1024,
                       .sequences = 256,
                       .free_blocks = 80,
                       .total_blocks = blocks,
                       .host_free_blocks = 10 * blocks,
                       .host_total_blocks = 40 * blocks,
                       .block_tokens = kBlockTokens}};
  }

 private:
  std::vector<SequenceView> running_;
  std::vector<SequenceView> offloaded_;
  std::vector<SequenceView> waiting_;
};

}  // namespace

std::vector<TwoTierPlans> measure_two_tier_plans(const TwoTierPlansOptions& options) {
  constexpr std::array kLanePlanners = {&kNeo, &kNeoCapped, &kNeoPlus, &kApex, &kApexPlus};
  const latency::CorrectedModel step_times = two_tier_step_times();
  const latency::HostTimes host_times = two_tier_host_times();
  const SteadyClock clock;
  std::vector<TwoTierPlans> measured;
  for (const PolicyDescriptor* policy : kLanePlanners) {
    Result<PolicyParts> parts =
        policy->make({}, {.step_times = &step_times, .host_times = &host_times});
    CHECK(parts.ok(), "{}", parts.error().message);
    Views views(options);
    TwoTierPlans& plans = measured.emplace_back();
    plans.policy = policy->name;
    for (int32_t step = 1; step <= options.steps; ++step) {
      const SystemView view = views.view(step, parts->step->reads_stages());
      const Nanos began = clock.now();
      const StepPlan plan = parts->step->plan(view);
      plans.micros.push_back(static_cast<double>((clock.now() - began).count()) / 1e3);
      CHECK(!plan.slices.empty(), "{} planned nothing for {} residents", policy->name,
            options.running);
    }
  }
  return measured;
}

}  // namespace tandem::bench
