// The sampler's passes over the vocabulary, for every vector target.
#include <algorithm>
#include <limits>

#include "kernels/portable/portable.h"
#include "kernels/sample_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/portable/sample.cc"
#include "kernels/portable/target.h"
#if TANDEM_PORTABLE_TARGET

#include "kernels/portable/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::kernels::portable::HWY_NAMESPACE {
namespace {

// kSampleLanes lanes are this many vectors.
constexpr int64_t kVectors = kSampleLanes / kLanes;

bool group_maxima(const float* x, int64_t count, int64_t group, float* maxima) {
  const FloatTag d;
  const FloatVec infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  auto usable = hn::Lt(hn::Zero(d), infinity);
  bool tail_usable = true;
  for (int64_t begin = 0; begin < count; begin += group) {
    const int64_t end = std::min(begin + group, count);
    FloatVec max = hn::Neg(infinity);
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      const FloatVec part = hn::LoadU(d, x + i);
      usable = hn::And(usable, hn::Lt(part, infinity));  // false for NaN too
      max = hn::Max(max, part);
    }
    float all = hn::GetLane(hn::MaxOfLanes(d, max));
    for (; i < end; ++i) {
      tail_usable = tail_usable && x[i] < std::numeric_limits<float>::infinity();
      all = std::max(all, x[i]);
    }
    maxima[begin / group] = all;
  }
  return tail_usable && hn::AllTrue(d, usable);
}

float weigh(const float* x, int64_t count, float max, float inverse_temperature, float* weights) {
  const FloatTag d;
  const FloatVec maxima = hn::Set(d, max);
  const FloatVec factor = hn::Set(d, inverse_temperature);
  FloatVec sums[kVectors];
  for (int64_t v = 0; v < kVectors; ++v) {
    sums[v] = hn::Zero(d);
  }
  int64_t i = 0;
  for (; i + kSampleLanes <= count; i += kSampleLanes) {
    for (int64_t v = 0; v < kVectors; ++v) {
      const FloatVec difference = hn::Sub(hn::LoadU(d, x + i + v * kLanes), maxima);
      const FloatVec weight = vector_exp(hn::Mul(difference, factor));
      hn::StoreU(weight, d, weights + i + v * kLanes);
      sums[v] = hn::Add(sums[v], weight);
    }
  }
  float lanes[kSampleLanes];
  for (int64_t v = 0; v < kVectors; ++v) {
    hn::StoreU(sums[v], d, lanes + v * kLanes);
  }
  for (int64_t lane = 0; i < count; ++i, ++lane) {
    weights[i] = exp_scalar((x[i] - max) * inverse_temperature);
    lanes[lane] += weights[i];
  }
  for (int64_t step = kSampleLanes / 2; step > 0; step /= 2) {
    for (int64_t lane = 0; lane < step; ++lane) {
      lanes[lane] += lanes[lane + step];
    }
  }
  return lanes[0];
}

int64_t count_greater(const float* x, int64_t count, float value) {
  const FloatTag d;
  const FloatVec limit = hn::Set(d, value);
  int64_t greater = 0;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    greater += static_cast<int64_t>(hn::CountTrue(d, hn::Gt(hn::LoadU(d, x + i), limit)));
  }
  for (; i < count; ++i) {
    greater += x[i] > value ? 1 : 0;
  }
  return greater;
}

void sample(const SampleArgs& args, int64_t row_begin, int64_t row_end) {
  constexpr SampleOps kOps = {group_maxima, weigh, count_greater};
  sample_rows(args, row_begin, row_end, kOps);
}

}  // namespace

void fill_sample(Kernels& table) { table.sample = sample; }

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tandem::kernels::portable::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

#if HWY_ONCE
namespace tandem::kernels::portable {
TANDEM_PORTABLE_EXPORT(fill_sample, Kernels)
}  // namespace tandem::kernels::portable
#endif
