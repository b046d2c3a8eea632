// Test help: a machine whose steps take what formulas say, with noise; time passes as it measures.
#pragma once

#include <algorithm>
#include <random>

#include "latency/batch.h"

namespace tandem::latency {

struct TestMachineOptions {
  BatchLimits limits{.rows = 512, .sequences = 64, .context = 1024, .tokens = 32768};
  double noise = 0;     // of a measurement, evenly both ways
  double slowness = 1;  // times as long
};

class TestMachine final : public BatchMeter {
 public:
  TestMachine(const TestMachineOptions& options, ManualClock& clock)
      : options_(options), clock_(clock) {}

  // Four layers; tiles of 32 rows in the dense stages, of 16 in the last one.
  [[nodiscard]] static double truth(const StepShape& shape) {
    const auto tiles = [](int64_t rows, int64_t tile) {
      return static_cast<double>((rows + tile - 1) / tile);
    };
    double nanos = 300'000;
    if (shape.rows() > 0) {
      nanos += 2e6 + 4e5 * tiles(shape.rows(), 32) + 2000.0 * static_cast<double>(shape.rows());
    }
    if (shape.logit_rows > 0) {
      nanos += 5e5 + 1e5 * tiles(shape.logit_rows, 16) + 3000.0 * shape.logit_rows;
    }
    const double attention =
        15.0 * static_cast<double>(shape.prefill_pairs) + 20'000.0 * shape.prefill_slices +
        40.0 * static_cast<double>(shape.decode_context) + 6000.0 * shape.decode_rows;
    return nanos + attention * (shape.logit_rows > 0 ? 1.0 : 0.75);
  }

  [[nodiscard]] BatchLimits limits() const override { return options_.limits; }
  Result<Nanos> measure(const Batch& batch) override {
    RETURN_IF_ERROR(check_batch(batch, options_.limits));
    std::uniform_real_distribution<double> off(1 - options_.noise, 1 + options_.noise);
    const Nanos took{static_cast<int64_t>(truth(batch.shape()) * options_.slowness * off(random_))};
    clock_.advance(took);
    ++measured_;
    return took;
  }
  [[nodiscard]] int64_t measured() const { return measured_; }

 private:
  const TestMachineOptions options_;
  ManualClock& clock_;
  std::mt19937 random_{7};
  int64_t measured_ = 0;
};

}  // namespace tandem::latency
