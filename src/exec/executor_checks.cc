#include "exec/executor_checks.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/units.h"
#include "exec/workspaces.h"

namespace tandem {
namespace {

Status check_host_tier(const kernels::KvLayout& layout, const HostTierOptions& host) {
  CHECK(host.clock != nullptr && host.binder != nullptr, "a host tier without clock or binder");
  const int64_t blocks = host.kv_bytes / layout.block_bytes();
  if (blocks < 1 || blocks > std::numeric_limits<int32_t>::max()) {
    return invalid_argument(
        fmt::format("a host pool of {} has {} blocks; one block of {} tokens takes {}",
                    format_bytes(host.kv_bytes), blocks, layout.block_tokens,
                    format_bytes(layout.block_bytes())),
        "host-memory");
  }
  constexpr int32_t kMostSequences = 1 << 20;
  if (host.sequences < 1 || host.sequences > kMostSequences) {
    return invalid_argument(
        fmt::format("{} offloaded sequences; it must be 1 .. {}", host.sequences, kMostSequences),
        "max-num-seqs");
  }
  CHECK(host.staging_tokens >= 0, "staging layers of {} tokens", host.staging_tokens);
  if (host.group_stages < 1) {
    return invalid_argument(
        fmt::format("groups of {} stages; it must be at least 1", host.group_stages),
        "group-stages");
  }
  return {};
}

}  // namespace

Status check_options(const model::ModelConfig& config, const ExecutorOptions& options,
                     bool kernels_run) {
  constexpr int32_t kMaxRows = 1 << 20;  // keeps every index of a step's arrays far from overflow
  if (options.max_batched_tokens < 1 || options.max_batched_tokens > kMaxRows) {
    return invalid_argument(fmt::format("max_batched_tokens is {}; it must be 1 .. {}",
                                        options.max_batched_tokens, kMaxRows),
                            "max_batched_tokens");
  }
  if (options.max_logit_rows < 1 || options.max_logit_rows > kMaxRows) {
    return invalid_argument(
        fmt::format("max_logit_rows is {}; it must be 1 .. {}", options.max_logit_rows, kMaxRows),
        "max_logit_rows");
  }
  if (options.kv_type != ElementType::kF32 && options.kv_type != ElementType::kBF16) {
    return invalid_argument(fmt::format("KV of type {}; float32 and bfloat16 can be stored",
                                        element_name(options.kv_type)),
                            "kv_type");
  }
  const int32_t multiple = kernels_run ? 16 : 2;  // tokens: V in bfloat16 is stored in pairs
  const int32_t block = options.block_tokens;
  if (block != 0 && (block < 0 || block % multiple != 0 || kernels::kSplitTokens % block != 0)) {
    return invalid_argument(
        fmt::format("block_tokens is {}; it must be 16, 32, 64, 128 or 256, or 0 to choose", block),
        "block_tokens");
  }
  const kernels::KvLayout layout = kv_layout_for(config, options);
  const int64_t blocks = total_blocks(layout, options);
  if (blocks < 1) {
    return invalid_argument(
        fmt::format("a KV pool of {} holds no block; one block of {} tokens takes {}",
                    format_bytes(std::max<int64_t>(options.kv_bytes, 0)), layout.block_tokens,
                    format_bytes(layout.block_bytes())),
        "kv_bytes");
  }
  if (blocks > std::numeric_limits<int32_t>::max()) {
    return invalid_argument(
        fmt::format("a KV pool of {} has {} blocks; at most {} can be named: "
                    "use larger blocks",
                    format_bytes(options.kv_bytes), blocks, std::numeric_limits<int32_t>::max()),
        "kv_bytes");
  }
  if (has_host_tier(options)) {
    return check_host_tier(layout, options.host);
  }
  return {};
}

void check_weights(const model::ModelConfig& config, const model::Weights& weights) {
  const int64_t attention = int64_t{config.heads} * weights.padded_head_dim;
  CHECK(static_cast<int32_t>(weights.layers.size()) == config.layers, "{} layers of {}",
        weights.layers.size(), config.layers);
  CHECK(weights.formats != nullptr && weights.numbers.residual != ElementType::kF16,
        "a residual of {}", element_name(weights.numbers.residual));
  CHECK(weights.padded_head_dim == kernels::round_up(config.head_dim, kernels::kHeadDimMultiple),
        "head dim {} padded to {}", config.head_dim, weights.padded_head_dim);
  CHECK(weights.embedding.k == weights.padded_hidden && weights.lm_head.k == weights.padded_hidden,
        "embedding and LM head of depth {}, {}", weights.embedding.k, weights.lm_head.k);
  CHECK(weights.lm_head.n == weights.padded_vocabulary, "LM head of {} columns", weights.lm_head.n);
  for (const model::LayerWeights& layer : weights.layers) {
    CHECK(layer.qkv.n == attention + 2 * int64_t{config.kv_heads} * weights.padded_head_dim &&
              layer.output.k == attention && layer.output.n == weights.padded_hidden,
          "QKV of {} columns, out-projection {} x {}", layer.qkv.n, layer.output.n, layer.output.k);
    CHECK(layer.gate_up.n == 2 * int64_t{weights.padded_intermediate} &&
              layer.down.k == weights.padded_intermediate,
          "gate and up of {} columns, down of depth {}", layer.gate_up.n, layer.down.k);
  }
}

}  // namespace tandem
