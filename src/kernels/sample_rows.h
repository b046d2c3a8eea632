// Choosing a token from a row of logits: everything but the passes over the whole vocabulary, which
// each kernel family brings (SampleOps) and which give the same bits in every family.
//
// Kept tokens are always a prefix of the order "higher logit first, lower id first among equals".
// - top-k keeps the k first of them.
// - top-p keeps tokens while the probability of those before is below top_p (of what top-k left).
// - min-p keeps tokens at least min_p times as likely as the first.
// At least one is kept. Then one uniform number u in [0, 1) is drawn and the kept tokens are walked
// in order of id: the drawn one is the first at which the running sum of weights exceeds u times
// the total. u has the 53 bits that Philox4x32-10 gives with the row's seed as key and its position
// as counter.
//
// No memory but fixed arrays on the stack (about 64 KB) and the row itself.
#pragma once

#include <cstdint>

#include "kernels/sample.h"
#include "kernels/sample_uniform.h"

namespace tandem::kernels {

inline constexpr int64_t kSampleLanes = 16;    // of every family's sums, whatever its vectors are
inline constexpr int64_t kSampleChunk = 1024;  // logits whose weights are summed in fp32
inline constexpr int64_t kMaxGroups = 2048;    // runs of logits whose maxima are kept

struct SampleOps {
  // maxima[g] = the largest of x[g * group .. (g + 1) * group - 1], for a `group` that is a
  // multiple of kSampleLanes and ceil(count / group) maxima. False when a logit is NaN or
  // +infinity.
  bool (*group_maxima)(const float* x, int64_t count, int64_t group, float* maxima);

  // weights[i] = exp((x[i] - max) * inverse_temperature), i < count <= kSampleChunk. Returns their
  // sum: kSampleLanes partial sums, added pairwise.
  float (*weigh)(const float* x, int64_t count, float max, float inverse_temperature,
                 float* weights);

  // How many of x are greater than `value`.
  int64_t (*count_greater)(const float* x, int64_t count, float value);
};

// Kernels::sample with these passes.
void sample_rows(const SampleArgs& args, int64_t row_begin, int64_t row_end, const SampleOps& ops);

}  // namespace tandem::kernels
