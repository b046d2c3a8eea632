// cos and sin of a step's positions, the same code for every family: computed in double, because
// an angle of 100,000 radians has no fraction left in fp32.
#pragma once

#include "kernels/rowwise.h"

namespace tandem::kernels {

void rope_table(const RopeTableArgs& args, int64_t row_begin, int64_t row_end);

}  // namespace tandem::kernels
