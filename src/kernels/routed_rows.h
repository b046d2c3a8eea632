// What only moves bits between the tiers, the same code for every family: the way back of attention
// results and residuals, and the KV write of a routed row.
#pragma once

#include "kernels/rowwise.h"

namespace tandem::kernels {

void tail_gather(const TailGatherArgs& args, int64_t row_begin, int64_t row_end);
void kv_append(const KvAppendArgs& args, int64_t kv_head_begin, int64_t kv_head_end);

}  // namespace tandem::kernels
