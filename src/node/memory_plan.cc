#include "node/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/units.h"
#include "kernels/gemm.h"
#include "kernels/kv_layout.h"
#include "model/weights.h"

namespace tandem {
namespace {

// The padded shape that load_weights will produce, without the weights.
model::Weights padded_shape(const model::ModelConfig& config, ElementType type) {
  const auto pad = [](int32_t size) {
    return static_cast<int32_t>(kernels::round_up(size, kernels::kDepthMultiple));
  };
  model::Weights shape;
  shape.type = type;
  shape.padded_hidden = pad(config.hidden);
  shape.padded_head_dim =
      static_cast<int32_t>(kernels::round_up(config.head_dim, kernels::kHeadDimMultiple));
  shape.padded_intermediate = pad(config.intermediate);
  shape.padded_vocabulary = pad(config.vocabulary);
  return shape;
}

// No more KV than all running sequences could ever use at once.
int64_t useful_blocks(int64_t max_len, int32_t block_tokens, int32_t max_running) {
  return ((max_len + block_tokens - 1) / block_tokens) * max_running;
}

}  // namespace

Result<MemoryPlan> plan_memory(const model::ModelConfig& config, const MemoryPlanInput& input) {
  MemoryPlan plan;
  plan.executor = input.executor;
  plan.memory_bytes = input.memory_bytes;
  plan.rows.push_back({"weights", model::weight_bytes(config, input.weight_type)});
  const std::vector<MemoryPlanRow> workspaces =
      plan_workspaces(config, padded_shape(config, input.weight_type), plan.executor);
  plan.rows.insert(plan.rows.end(), workspaces.begin(), workspaces.end());
  int64_t fixed = 0;
  for (const MemoryPlanRow& row : plan.rows) {
    fixed += row.bytes;
  }

  const kernels::KvLayout layout = kv_layout_for(config, plan.executor);
  plan.block_tokens = layout.block_tokens;
  const int32_t longest = std::max(config.max_positions, config.stretched_positions);
  if (input.max_model_len > longest) {
    return invalid_argument(
        fmt::format("--max-model-len {} is more than the {} positions that the model knows",
                    input.max_model_len, longest),
        "max-model-len");
  }
  const int32_t wanted_len = input.max_model_len > 0 ? input.max_model_len : config.max_positions;
  int64_t blocks = std::max<int64_t>(input.memory_bytes - fixed, 0) / layout.block_bytes();
  blocks = std::min(blocks, useful_blocks(wanted_len, layout.block_tokens, input.max_running));
  if (plan.executor.kv_bytes > 0) {
    blocks = plan.executor.kv_bytes / layout.block_bytes();
  }
  blocks = std::min<int64_t>(blocks, INT32_MAX);
  plan.kv_blocks = blocks;
  plan.kv_tokens = blocks * layout.block_tokens;
  plan.executor.kv_bytes = blocks * layout.block_bytes();
  plan.rows.push_back({"KV blocks", plan.executor.kv_bytes});
  plan.total_bytes = fixed + plan.executor.kv_bytes;

  const int64_t needed_len = input.max_model_len > 0 ? input.max_model_len : 1;
  if (plan.kv_tokens < needed_len || plan.total_bytes > input.memory_bytes) {
    const int64_t least =
        fixed + (needed_len + layout.block_tokens - 1) / layout.block_tokens * layout.block_bytes();
    return Error{
        ErrorCode::kResourceExhausted,
        fmt::format(
            "the model does not fit: weights and workspaces take {}, KV for one sequence of "
            "{} tokens makes it {}, the plan has {}. Raise --device-memory (now {}), or lower "
            "--max-model-len, --max-num-batched-tokens or --max-num-seqs",
            format_bytes(fixed), needed_len, format_bytes(least),
            format_bytes(plan.executor.kv_bytes + fixed), format_bytes(input.memory_bytes)),
        "device-memory"};
  }
  plan.max_model_len = static_cast<int32_t>(std::min<int64_t>(wanted_len, plan.kv_tokens));
  plan.executor.served_positions = plan.max_model_len;
  return plan;
}

std::string format_plan(const MemoryPlan& plan) {
  std::string text;
  for (const MemoryPlanRow& row : plan.rows) {
    fmt::format_to(std::back_inserter(text), "  {:<28}{:>12}\n", row.what, format_bytes(row.bytes));
  }
  fmt::format_to(std::back_inserter(text), "  {:<28}{:>12} of {}\n", "in all",
                 format_bytes(plan.total_bytes), format_bytes(plan.memory_bytes));
  fmt::format_to(std::back_inserter(text),
                 "  KV holds {} tokens in {} blocks of {}; a sequence may have {} tokens",
                 plan.kv_tokens, plan.kv_blocks, plan.block_tokens, plan.max_model_len);
  return text;
}

}  // namespace tandem
