#include "node/device_tuning.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

using latency::Batch;
using latency::BatchLimits;

// Notes the order of calls.
class NotedTuning final : public device::Tuning {
 public:
  void begin() override { begun = true; }
  Result<std::vector<TunedChoice>> end(Nanos wanted) override {
    limit = wanted;
    if (lost) {
      return Error{ErrorCode::kUnavailable, "the GPU failed", ""};
    }
    return std::vector<TunedChoice>{{.work = "a product", .choice = 1, .us = 3, .usual_us = 4}};
  }
  void use(std::span<const TunedChoice> /*choices*/) override {}

  bool begun = false;
  bool lost = false;
  Nanos limit{0};
};

class NotedBatches final : public latency::BatchMeter {
 public:
  NotedBatches(const BatchLimits& limits, const NotedTuning& tuning)
      : limits_(limits), tuning_(tuning) {}
  [[nodiscard]] BatchLimits limits() const override { return limits_; }
  Result<Nanos> measure(const Batch& batch) override {
    EXPECT_TRUE(tuning_.begun);
    EXPECT_TRUE(check_batch(batch, limits_).ok());
    const latency::StepShape shape = batch.shape();
    for (const Batch::Prompt& prompt : batch.prompts) {
      EXPECT_GT(prompt.computed_tokens, 0) << "it would wait in the queue, which shows a few";
    }
    rows.push_back(shape.rows());
    logits.push_back(shape.logit_rows);
    return std::exchange(extra, Nanos{0}) + step * shape.rows();
  }

  Nanos step{1000};  // for each row
  Nanos extra{0};    // of the first step
  std::vector<int64_t> rows;
  std::vector<int64_t> logits;

 private:
  const BatchLimits limits_;
  const NotedTuning& tuning_;
};

constexpr Nanos kTime = std::chrono::seconds(12);

TEST(TuneDevice, RunsAStepOfEveryRangeOfRows) {
  NotedTuning tuning;
  NotedBatches meter({.rows = 100, .sequences = 8, .context = 40, .tokens = 4096}, tuning);
  const auto choices = tune_device(tuning, meter, kTime, {});
  ASSERT_TRUE(choices.ok());
  EXPECT_EQ(choices->size(), 1U);
  EXPECT_EQ(meter.rows, (std::vector<int64_t>{1, 2, 4, 8, 16, 32, 64, 100}));
  EXPECT_EQ(meter.logits, (std::vector<int64_t>{1, 2, 4, 8, 7, 7, 6, 5}));
  EXPECT_EQ(tuning.limit, kTime / 3);
}

TEST(TuneDevice, StopsWhereStepsTakeLongOrDoNotFit) {
  NotedTuning tuning;
  NotedBatches slow({.rows = 4096, .sequences = 8, .context = 4096, .tokens = 65536}, tuning);
  slow.step = std::chrono::milliseconds(20);
  ASSERT_TRUE(tune_device(tuning, slow, kTime, {}).ok());
  EXPECT_EQ(slow.rows.back(), 32) << "0.64 s of 12 s";
  NotedBatches small({.rows = 4096, .sequences = 8, .context = 4096, .tokens = 256}, tuning);
  ASSERT_TRUE(tune_device(tuning, small, kTime, {}).ok());
  EXPECT_EQ(small.rows.back(), 32);
}

TEST(TuneDevice, AFirstStepThatLoadsKernelsEndsNothing) {
  NotedTuning tuning;
  NotedBatches meter({.rows = 4, .sequences = 4, .context = 40, .tokens = 4096}, tuning);
  meter.extra = std::chrono::seconds(1);
  ASSERT_TRUE(tune_device(tuning, meter, kTime, {}).ok());
  EXPECT_EQ(meter.rows, (std::vector<int64_t>{1, 1, 2, 4}));
}

TEST(TuneDevice, RowsOfAllRangesAreSampledAndPromptsOfAnyNumberFit) {
  NotedTuning tuning;
  NotedBatches meter({.rows = 8192, .sequences = 200, .context = 98, .tokens = 1 << 20}, tuning);
  ASSERT_TRUE(tune_device(tuning, meter, kTime, {}).ok());
  EXPECT_EQ(meter.rows.back(), 8192);
  EXPECT_GT(*std::ranges::max_element(meter.logits), 128) << "200 decodes may run";
}

TEST(TuneDevice, ALostDeviceIsAnError) {
  NotedTuning tuning;
  tuning.lost = true;
  NotedBatches meter({.rows = 4, .sequences = 4, .context = 40, .tokens = 4096}, tuning);
  EXPECT_FALSE(tune_device(tuning, meter, kTime, {}).ok());
}

}  // namespace
}  // namespace tandem
