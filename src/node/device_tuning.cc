#include "node/device_tuning.h"

#include <algorithm>

#include "base/log.h"
#include "base/units.h"

namespace tandem {
namespace {

// Decodes, which are sampled; for more rows than sequences also prompts, which do not end.
latency::Batch batch_of(int32_t rows, const latency::BatchLimits& limits) {
  constexpr int32_t kShortContext = 4;
  const int32_t max_rows = std::max(limits.context - 2, 1);  // of a prompt
  const int32_t prompts = rows <= limits.sequences ? 0 : (rows + max_rows - 1) / max_rows;
  const int32_t decodes = std::min(rows, std::max(limits.sequences - prompts, 0));
  latency::Batch batch;
  batch.contexts.assign(static_cast<size_t>(decodes), std::min(kShortContext, limits.context));
  for (int32_t left = rows - decodes; left > 0; left -= max_rows) {
    batch.prompts.push_back({.computed_tokens = 1, .rows = std::min(left, max_rows), .logits = 0});
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
  constexpr int kMaxShare = 20;  // a step may take this part of the time
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
    ASSIGN_OR_RETURN(Nanos took, meter.measure(batch));
    if (took > time / kMaxShare) {  // the first step of its kind may have loaded kernels
      ASSIGN_OR_RETURN(took, meter.measure(batch));
    }
    if (took > time / kMaxShare && rows < limits.rows) {
      log::info("tuning: steps of {} rows take {}; nothing is timed for larger steps", rows,
                format_duration(took));
      break;
    }
    if (rows == limits.rows) {
      break;
    }
  }
  ASSIGN_OR_RETURN(std::vector<TunedChoice> choices, tuning.end(time / 3));
  report(choices);
  return choices;
}

}  // namespace tandem
