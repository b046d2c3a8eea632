// The kernels of the CUDA back end as one more family: the same source that a CUDA compiler makes
// GPU code of, run by the host index by index. What only a GPU can show (its libm, its memory, many
// indices at once) stays open here.
#pragma once

#include "kernels/cast.h"
#include "kernels/kernels.h"

namespace tandem::kernels {

// kv_append, fold and write_attended are the reference family's: no op of a device needs them.
const Kernels& cuda_kernels();
void cuda_cast(const CastArgs& args, int64_t row_begin, int64_t row_end);

}  // namespace tandem::kernels
