// The sampler's passes over the vocabulary, as plain loops.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/exp.h"
#include "kernels/ref/ref.h"
#include "kernels/sample_rows.h"

namespace tandem::kernels::ref {

namespace {

bool group_maxima(const float* x, int64_t count, int64_t group, float* maxima) {
  bool usable = true;
  for (int64_t begin = 0; begin < count; begin += group) {
    float max = -std::numeric_limits<float>::infinity();
    for (int64_t i = begin; i < std::min(begin + group, count); ++i) {
      usable = usable && x[i] < std::numeric_limits<float>::infinity();  // false for NaN too
      max = std::fmax(max, x[i]);
    }
    maxima[begin / group] = max;
  }
  return usable;
}

float weigh(const float* x, int64_t count, float max, float inverse_temperature, float* weights) {
  float sums[kSampleLanes] = {};
  for (int64_t i = 0; i < count; ++i) {
    weights[i] = exp_scalar((x[i] - max) * inverse_temperature);
    sums[i % kSampleLanes] += weights[i];
  }
  for (int64_t step = kSampleLanes / 2; step > 0; step /= 2) {
    for (int64_t i = 0; i < step; ++i) {
      sums[i] += sums[i + step];
    }
  }
  return sums[0];
}

int64_t count_greater(const float* x, int64_t count, float value) {
  return std::count_if(x, x + count, [value](float other) { return other > value; });
}

void sample(const SampleArgs& args, int64_t row_begin, int64_t row_end) {
  constexpr SampleOps kOps = {group_maxima, weigh, count_greater};
  sample_rows(args, row_begin, row_end, kOps);
}

}  // namespace

void fill_sample(Kernels& table) { table.sample = sample; }

}  // namespace tandem::kernels::ref
