#include "node/device_tuning.h"

#include <algorithm>

#include "base/log.h"

namespace tandem {
namespace {

// Decodes if `rows` of them may run, so that all rows are sampled; else prompts.
latency::Batch batch_of(int32_t rows, const latency::BatchLimits& limits) {
  constexpr int32_t kShortContext = 4;
  latency::Batch batch;
  if (rows <= limits.sequences) {
    batch.contexts.assign(static_cast<size_t>(rows), std::min(kShortContext, limits.context));
    return batch;
  }
  const int32_t most_rows = std::max(limits.context - 1, 1);
  for (int32_t left = rows; left > 0; left -= most_rows) {
    batch.prompts.push_back({.rows = std::min(left, most_rows), .logits = 0});
  }
  return batch;
}

void report(const std::vector<TunedChoice>& choices) {
  const auto others = std::ranges::count_if(choices, [](auto& each) { return each.choice != 0; });
  double gain = 0;
  for (const TunedChoice& each : choices) {
    gain = each.usual_us > 0 ? std::max(gain, 1 - each.us / each.usual_us) : gain;
  }
  log::info(
      "tuning: {} kinds of work were timed; {} of them gain by another way than the usual, up "
      "to {:.0f} %",
      choices.size(), others, gain * 100);
}

}  // namespace

Result<std::vector<TunedChoice>> tune_device(device::Tuning& tuning, latency::BatchMeter& meter,
                                             Nanos time, const latency::ProfileProgress& progress) {
  constexpr int kMostOfTime = 20;  // a step may take this part of the time
  const latency::BatchLimits limits = meter.limits();
  tuning.begin();
  for (int32_t rows = 1;; rows = std::min(rows * 2, limits.rows)) {
    const latency::Batch batch = batch_of(rows, limits);
    if (!check_batch(batch, limits).ok()) {
      break;
    }
    if (progress) {
      progress(0, "tuning");
    }
    ASSIGN_OR_RETURN(const Nanos took, meter.measure(batch));
    if (rows == limits.rows || took > time / kMostOfTime) {
      break;
    }
  }
  ASSIGN_OR_RETURN(std::vector<TunedChoice> choices, tuning.end(time / 3));
  report(choices);
  return choices;
}

}  // namespace tandem
