// Attention in `tandem bench kernels`: decode beside a read-only pass over the same blocks in the
// same order (the paged ceiling), prefill beside the family's multiplier. The two passes
// of a row alternate, and both are medians of one run, so a busy machine spoils both alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/gemm_bench.h"
#include "kernels/kernels.h"

namespace tandem::bench {

struct AttentionShape {
  std::string name;
  int32_t kv_heads = 0;
  int32_t group = 0;     // query heads per kv head
  int32_t head_dim = 0;  // a multiple of 32
};

struct AttentionBenchOptions {
  ElementType type = ElementType::kBF16;
  int threads = 2;
  int32_t block_tokens = 32;
  std::vector<AttentionShape> shapes = {
      {"4x64 gqa 8", 4, 8, 64}, {"8x128 gqa 4", 8, 4, 128}, {"32x64 mha", 32, 1, 64}};
  std::vector<int32_t> contexts = {1024, 4096, 16384};  // decode
  std::vector<int32_t> prompts = {512, 2048};           // prefill from an empty context
  int32_t chunk = 256;  // longer prompts also in chunks of so many tokens
  int passes = 7;
  std::string only;                     // rows whose name holds this; empty: all
  int64_t kv_bytes = int64_t{1} << 30;  // of all sequences together, so that caches do not help
};

// One row per shape and context or prompt. BenchRow: rows = tokens computed at once, n = context,
// k = kv heads * head dim, ceiling_seconds = the reading pass, or the operations at
// `operations_per_second` (0: unknown) for prefill. Where a prompt is computed in chunks, rows is
// the chunk's, and ceiling_seconds what the whole prompt takes at once.
std::vector<BenchRow> measure_attention(const AttentionBenchOptions& options, kernels::Isa isa,
                                        double operations_per_second);

}  // namespace tandem::bench
