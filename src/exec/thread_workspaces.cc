// What compute threads that are this machine's take for themselves, for the memory plan.
#include <algorithm>

#include "device/cpu/host_formats.h"
#include "exec/forward_executor.h"
#include "kernels/kernels.h"

namespace tandem {
namespace {

using kernels::GemmArgs;
using kernels::GemmStore;
using kernels::Kernels;

bool same_shape(const GemmArgs& a, const GemmArgs& b) {
  return a.w.n == b.w.n && a.w.k == b.w.k && a.w.quantization == b.w.quantization &&
         a.store == b.store;
}

// The shapes of a step's matrix products, each once, without data.
std::vector<GemmArgs> products(const model::Weights& weights) {
  std::vector<GemmArgs> shapes;
  const auto add = [&](const device::WeightMatrix& matrix, GemmStore store) {
    GemmArgs args;
    args.w = device::packed(matrix);
    args.store = store;
    if (std::none_of(shapes.begin(), shapes.end(),
                     [&](const GemmArgs& other) { return same_shape(args, other); })) {
      shapes.push_back(args);
    }
  };
  for (const model::LayerWeights& layer : weights.layers) {
    add(layer.qkv, GemmStore::kWrite);
    add(layer.output, GemmStore::kAdd);
    add(layer.gate_up, GemmStore::kSiluMul);
    add(layer.down, GemmStore::kAdd);
  }
  add(weights.lm_head, GemmStore::kWrite);
  return shapes;
}

// Bytes of prepared rows (Kernels::prepare), which all threads share.
int64_t max_prepared(const Kernels& table, const model::Weights& weights, int64_t rows) {
  int64_t bytes = 0;
  for (GemmArgs& args : products(weights)) {
    args.rows = rows;
    bytes = std::max(bytes, table.prepared_bytes(args));
  }
  return bytes;
}

int64_t most_for_products(const Kernels& table, const model::Weights& weights, int64_t rows) {
  // Rows beyond that are taken in sets, whose sizes all occur below, or as they are.
  constexpr int64_t kMostVaried = 1024;
  int64_t most = 0;
  for (GemmArgs& args : products(weights)) {
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
  int64_t shared = 0;
  for (const kernels::Isa isa : kernels::available_isas()) {
    const Result<const Kernels*> table = kernels::kernels_for(isa);
    if (table.ok()) {
      most = std::max({most, (*table)->attend_scratch_bytes(attention),
                       most_for_products(**table, weights, rows)});
      shared = std::max(shared, max_prepared(**table, weights, rows));
    }
  }
  return most * std::max(options.compute_threads, 1) + shared;
}

}  // namespace tandem
