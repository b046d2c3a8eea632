// Profiles come from outside: whatever parse_profile accepts must give times that can be added and
// compared, however large or odd its numbers are.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <utility>

#include "latency/coefficients.h"
#include "latency/corrected_model.h"
#include "latency/profile.h"

namespace tandem::latency {
namespace {

// `scale`: of the largest numbers that a profile may hold; small ones make corrections matter.
class RandomProfiles {
 public:
  RandomProfiles(uint64_t seed, double scale) : random_(seed), scale_(scale) {}

  uint64_t below(uint64_t end) { return random_() % end; }
  double number(double max) {
    max = std::max(max * scale_, 1.0);
    switch (below(5)) {
      case 0:
        return 0;
      case 1:
        return max;
      case 2:
        return max * 1e-6;
      case 3:
        return 1e-300;
      default:
        return std::min(max, std::pow(10.0, static_cast<double>(below(9))));
    }
  }
  Ladder ladder() {
    std::vector<LadderPoint> points;
    int64_t rows = 0;
    double nanos = 0;
    for (uint64_t left = 1 + below(5); left > 0; --left) {
      rows += 1 + static_cast<int64_t>(below(below(2) == 0 ? 4 : 5000));
      nanos = std::min(kMostNanos, nanos + number(kMostNanos) / 2);
      points.push_back({rows, nanos});
    }
    return *Ladder::through(std::move(points));
  }
  Profile profile() {
    Profile made;
    made.date = "2026-01-02T03:04:05Z";
    made.identity = {"m", "d", "d", "c", "i", 1, "bf16", "bf16"};
    const int32_t layers = below(2) == 0 ? kMostLayers : 1 + static_cast<int32_t>(below(80));
    ModularCosts& modular = made.modular;
    modular.layers = layers;
    modular.fixed = number(kMostNanos);
    modular.first_stage_share = number(1);
    modular.dense = ladder();
    modular.head = ladder();
    modular.prefill = {number(kMostRowNanos), number(kMostRowNanos), number(kMostRowNanos),
                       number(kMostNanos)};
    modular.decode = {number(kMostRowNanos), number(kMostRowNanos), number(kMostNanos)};
    modular.per_visit = number(kMostRowNanos);
    modular.collective = {number(kMostNanos), number(kMostRowNanos)};
    made.regression.layers = layers;
    made.regression.fixed = number(kMostNanos);
    for (double* cost : {&made.regression.prefill_rows, &made.regression.decode_context,
                         &made.regression.prefill_rows_squared,
                         &made.regression.decode_context_squared, &made.regression.prefill_slices,
                         &made.regression.decode_rows, &made.regression.prefix_products}) {
      *cost = number(kMostRowNanos);
    }
    made.table.layers = layers;
    made.table.prefill = ladder();
    made.table.prefix_products = number(kMostRowNanos);
    int64_t sequences = 0;
    for (uint64_t left = 1 + below(4); left > 0; --left) {
      sequences += 1 + static_cast<int64_t>(below(40));
      made.table.decode.push_back({sequences, ladder()});
    }
    return made;
  }
  // Grows the shape by one of the things that a step may hold.
  void grow(StepShape& shape) {
    switch (below(4)) {
      case 0:
        shape.add_decode(1 + static_cast<int32_t>(below(131072)));
        break;
      case 1:
        shape.add_prefill(static_cast<int32_t>(below(131072)),
                          1 + static_cast<int32_t>(below(2048)), static_cast<int32_t>(below(2)));
        break;
      case 2:
        shape.visits += static_cast<int32_t>(below(500));
        break;
      default:
        shape.visitor_logits += static_cast<int32_t>(below(20));
        break;
    }
  }

 private:
  std::mt19937_64 random_;
  const double scale_;
};

void disturb(CorrectedModel& model, RandomProfiles& random) {
  for (int i = 0; i < 30; ++i) {
    StepShape shape;
    random.grow(shape);
    model.observe(shape, Nanos{1 + static_cast<int64_t>(random.below(1'000'000'000))});
  }
}

void expect_sane_times(const CorrectedModel& model, RandomProfiles& random) {
  StepShape shape;
  Nanos before{0};
  for (int i = 0; i < 12; ++i) {
    random.grow(shape);
    const Nanos time = model.step_time(shape);
    EXPECT_GE(time, before) << model.name() << ": more is cheaper";
    EXPECT_LE(time, Nanos{static_cast<int64_t>(kMostNanos)});
    for (const int32_t stage : {0, model.layers() / 2, model.layers()}) {
      const Nanos part = model.time_before_stage(shape, stage);
      EXPECT_GE(part, Nanos{0}) << model.name();
      EXPECT_LE(part, time) << model.name() << ": a part is longer than the step";
    }
    EXPECT_GE(model.visit_time({.stage = 0, .rows = shape.rows()}, 7), Nanos{0});
    before = time;
  }
}

TEST(HostileProfiles, GiveTimesThatCanBeAddedAndCompared) {
  int accepted = 0;
  for (uint64_t seed = 0; seed < 1200; ++seed) {
    RandomProfiles random(seed, seed % 2 == 0 ? 1 : 1e-7);
    const Result<Profile> profile = parse_profile(profile_text(random.profile()));
    if (!profile.ok()) {
      continue;
    }
    ++accepted;
    for (const TimeModel which : {TimeModel::kModular, TimeModel::kRegression, TimeModel::kTable}) {
      CorrectedModel model(make_time_model(*profile, which).value());
      disturb(model, random);
      expect_sane_times(model, random);
      if (HasFailure()) {
        FAIL() << "seed " << seed;
      }
    }
  }
  EXPECT_GT(accepted, 900);
}

}  // namespace
}  // namespace tandem::latency
