#include "latency/questions.h"

#include <algorithm>

namespace tandem::latency {
namespace {

// The largest count in 0 .. most for which `fits`, which must be true up to some count and false
// beyond; 0 is taken to fit. Looked for from `guess` outwards, then between.
template <class Fits>
int64_t largest(int64_t most, int64_t guess, const Fits& fits) {
  if (most <= 0) {
    return 0;
  }
  int64_t low = 0;          // fits
  int64_t high = most + 1;  // does not
  const auto look_at = [&](int64_t count) { (fits(count) ? low : high) = count; };
  look_at(guess > 0 ? std::min(guess, most) : most);
  for (int64_t stride = 1; guess > 0 && stride <= most; stride *= 4) {
    if (low > 0 && high == most + 1 && low < most) {
      look_at(std::min(low + stride, most));
    } else if (low == 0 && high > 1) {
      look_at(std::max<int64_t>(high - stride, 1));
    } else {
      break;
    }
  }
  while (high - low > 1) {
    look_at(low + (high - low) / 2);
  }
  return low;
}

}  // namespace

int32_t largest_chunk(const StepTimeModel& model, const StepShape& shape,
                      const ChunkQuestion& question, Nanos limit) {
  const PromptRest& prompt = question.prompt;
  const int32_t max = std::max(std::min(question.max_tokens, prompt.pending_tokens), 0);
  if (limit == Nanos::max()) {
    return max;
  }
  const auto fits = [&](int64_t tokens) {
    StepShape tried = shape;
    const int32_t logits = tokens == prompt.pending_tokens ? prompt.choices : 0;
    tried.add_prefill(prompt.computed_tokens, static_cast<int32_t>(tokens), logits);
    return model.step_time(tried) <= limit;
  };
  return std::max(std::min(max, question.least_tokens),
                  static_cast<int32_t>(largest(max, question.guess, fits)));
}

void add_visits(StepShape& shape, int64_t stages, int64_t visits) {
  const int64_t last = visits / stages;  // at the stage of the logits
  shape.visitor_logits += static_cast<int32_t>(last);
  shape.visits += visits - last;
}

Nanos visitor_reserve(const StepTimeModel& model, const StepShape& shape, int64_t ready) {
  if (ready <= 0) {
    return Nanos{0};
  }
  StepShape with = shape;
  add_visits(with, int64_t{model.layers()} + 1, ready);
  return model.step_time(with) - model.step_time(shape);
}

int64_t visitors_within(const StepTimeModel& model, const StageRows& at, Nanos slack,
                        int64_t most) {
  return largest(most, 0,
                 [&](int64_t visitors) { return model.visit_time(at, visitors) <= slack; });
}

}  // namespace tandem::latency
