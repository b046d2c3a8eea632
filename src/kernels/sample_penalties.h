// Bias, bans and penalties of one row of logits, in this order: bias, bans, repetition (prompt and
// output), frequency and presence (output). Token ids outside 0 .. vocabulary-1 are ignored.
#pragma once

#include <cstdint>

#include "kernels/sample.h"

namespace tandem::kernels {

void apply_biases_and_penalties(const SampleRow& spec, float* logits, int64_t vocabulary);

}  // namespace tandem::kernels
