// What compute threads that are this machine's take for themselves, for the memory plan.
#include <algorithm>

#include "exec/forward_executor.h"
#include "kernels/kernels.h"

namespace tandem {
namespace {

using kernels::GemmArgs;
using kernels::GemmStore;
using kernels::Kernels;
using kernels::PackedMatrix;

// The shapes of a step's matrix products, without data.
std::vector<GemmArgs> products(const model::ModelConfig& config, const model::Weights& weights) {
  const int64_t attention = int64_t{config.heads} * weights.padded_head_dim;
  const int64_t qkv = attention + 2 * int64_t{config.kv_heads} * weights.padded_head_dim;
  const auto product = [&](int64_t n, int64_t k, GemmStore store,
                           Quantization quantization = Quantization::kNone) {
    GemmArgs args;
    args.w = {.type = weights.format.type, .n = n, .k = k, .quantization = quantization};
    args.store = store;
    return args;
  };
  const Quantization of_layers = weights.format.quantization;
  return {product(qkv, weights.padded_hidden, GemmStore::kWrite, of_layers),
          product(weights.padded_hidden, attention, GemmStore::kAdd, of_layers),
          product(2 * int64_t{weights.padded_intermediate}, weights.padded_hidden,
                  GemmStore::kSiluMul, of_layers),
          product(weights.padded_hidden, weights.padded_intermediate, GemmStore::kAdd, of_layers),
          product(weights.padded_vocabulary, weights.padded_hidden, GemmStore::kWrite)};
}

int64_t most_for_products(const Kernels& table, const model::ModelConfig& config,
                          const model::Weights& weights, int64_t rows) {
  // Rows beyond that are taken in sets, whose sizes all occur below, or as they are.
  constexpr int64_t kMostVaried = 1024;
  int64_t most = 0;
  for (GemmArgs& args : products(config, weights)) {
    for (args.rows = 1; args.rows <= std::min(rows, kMostVaried); ++args.rows) {
      most = std::max(most, table.gemm_scratch_bytes(args));
    }
    args.rows = rows;
    most = std::max(most, table.gemm_scratch_bytes(args));
  }
  return most;
}

}  // namespace

int64_t thread_workspace_bytes(const model::ModelConfig& config, const model::Weights& weights,
                               const ExecutorOptions& options) {
  kernels::AttentionArgs attention;
  attention.layout = kv_layout_for(config, options);
  attention.heads = config.heads;
  const int64_t rows = std::max(options.max_batched_tokens, options.max_logit_rows);
  int64_t most = 0;
  for (const kernels::Isa isa : kernels::available_isas()) {
    const Result<const Kernels*> table = kernels::kernels_for(isa);
    if (table.ok()) {
      most = std::max({most, (*table)->attend_scratch_bytes(attention),
                       most_for_products(**table, config, weights, rows)});
    }
  }
  return most * std::max(options.compute_threads, 1);
}

}  // namespace tandem
