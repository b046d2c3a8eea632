#include "latency/questions.h"

#include <algorithm>

namespace tandem::latency {
namespace {

// The largest count in 0 .. most for which `fits`, which must be true up to some count and false
// beyond; 0 is taken to fit.
template <class Fits>
int64_t largest(int64_t most, const Fits& fits) {
  // Often all of it fits, or nearly.
  if (most <= 0 || fits(most)) {
    return std::max<int64_t>(most, 0);
  }
  int64_t low = 0;
  int64_t high = most - 1;
  if (const int64_t nearly = high - high / 16; nearly < high) {
    if (fits(nearly)) {
      low = nearly;
    } else {
      high = nearly - 1;
    }
  }
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace

int32_t largest_chunk(const StepTimeModel& model, const StepShape& shape,
                      const ChunkQuestion& question, Nanos limit) {
  const int32_t most = std::min(question.most_tokens, question.pending_tokens);
  const auto fits = [&](int64_t tokens) {
    StepShape tried = shape;
    const int32_t logits = tokens == question.pending_tokens ? question.last_logits : 0;
    tried.add_prefill(question.computed_tokens, static_cast<int32_t>(tokens), logits);
    return model.step_time(tried) <= limit;
  };
  return static_cast<int32_t>(largest(most, fits));
}

Nanos visitor_reserve(const StepTimeModel& model, const StepShape& shape, int64_t ready) {
  if (ready <= 0) {
    return Nanos{0};
  }
  const int64_t stages = int64_t{model.layers()} + 1;
  StepShape with = shape;
  const int64_t last = ready / stages;  // at the stage of the logits
  with.visitor_logits += static_cast<int32_t>(last);
  with.visits += ready - last;
  return model.step_time(with) - model.step_time(shape);
}

int64_t visitors_within(const StepTimeModel& model, const StageRows& at, Nanos slack,
                        int64_t most) {
  return largest(most, [&](int64_t visitors) { return model.visit_time(at, visitors) <= slack; });
}

}  // namespace tandem::latency
