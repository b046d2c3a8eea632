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

int64_t blocks_of(int64_t tokens, int32_t block_tokens) {
  return (tokens + block_tokens - 1) / block_tokens;
}

// No more KV than all running sequences could ever use at once.
int64_t useful_blocks(int64_t max_len, int32_t block_tokens, int32_t max_running) {
  return blocks_of(max_len, block_tokens) * max_running;
}

int64_t sum_of(const std::vector<MemoryPlanRow>& rows) {
  int64_t sum = 0;
  for (const MemoryPlanRow& row : rows) {
    sum += row.bytes;
  }
  return sum;
}

// The host's side of the plan, of whose accelerator side the context is known.
Result<HostMemoryPlan> plan_host(const MemoryPlan& plan, const MemoryPlanInput& input,
                                 const std::vector<MemoryPlanRow>& buffers) {
  HostMemoryPlan host;
  if (input.host_memory_bytes == 0) {
    return host;
  }
  if (input.offloaded_sequences < 1) {
    return invalid_argument("a host tier needs at least one place for an offloaded sequence",
                            input.flags.host);
  }
  host.block_bytes = plan.executor.kv_bytes / plan.kv_blocks;
  host.offloaded_sequences = input.offloaded_sequences;
  host.memory_bytes = input.host_memory_bytes;
  const int64_t fixed = sum_of(buffers);
  const int64_t useful =
      useful_blocks(plan.max_model_len, plan.block_tokens, input.offloaded_sequences);
  host.kv_blocks =
      std::min(std::max<int64_t>(input.host_memory_bytes - fixed, 0) / host.block_bytes, useful);
  host.kv_blocks = std::min<int64_t>(host.kv_blocks, INT32_MAX);
  if (host.kv_blocks < 1) {
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("the host tier does not fit: its buffers take {} and a KV block {}. "
                             "Raise --{}, which gives {} now",
                             format_bytes(fixed), format_bytes(host.block_bytes), input.flags.host,
                             format_bytes(input.host_memory_bytes)),
                 input.flags.host};
  }
  host.kv_bytes = host.kv_blocks * host.block_bytes;
  return host;
}

// The blocks that the host's pool has at most, before it is known what is left for it.
int64_t most_host_blocks(const MemoryPlanInput& input, const kernels::KvLayout& layout,
                         int32_t longest) {
  return std::min(input.host_memory_bytes / layout.block_bytes(),
                  useful_blocks(longest, layout.block_tokens, input.offloaded_sequences));
}

// Everything on the accelerator but KV; `tier` gets what a second tier takes on both sides.
std::vector<MemoryPlanRow> fixed_rows(const model::ModelConfig& config,
                                      const MemoryPlanInput& input, const ExecutorOptions& executor,
                                      HostTierPlan& tier) {
  const model::Weights shape = model::hollow_weights(config, input.format, *input.formats);
  std::vector<MemoryPlanRow> rows = {
      {"weights", model::weight_bytes(config, input.format, *input.formats)}};
  const std::vector<MemoryPlanRow> workspaces = plan_workspaces(config, shape, executor);
  rows.insert(rows.end(), workspaces.begin(), workspaces.end());
  if (input.host_memory_bytes > 0) {
    tier = plan_host_tier(config, shape, executor);
    rows.insert(rows.end(), tier.accelerator.begin(), tier.accelerator.end());
  } else {
    rows.push_back({"compute threads", thread_workspace_bytes(config, shape, executor)});
  }
  return rows;
}

// What is allocated, now that all sizes are known.
void fill_rows(const model::ModelConfig& config, const MemoryPlanInput& input, MemoryPlan& plan) {
  HostTierPlan tier;
  plan.rows = fixed_rows(config, input, plan.executor, tier);
  plan.rows.push_back({"KV blocks", plan.executor.kv_bytes});
  plan.total_bytes = sum_of(plan.rows);
  if (input.host_memory_bytes > 0) {
    plan.host.rows = tier.host;
    plan.host.rows.push_back({"host KV blocks", plan.host.kv_bytes});
    plan.host.total_bytes = sum_of(plan.host.rows);
  }
}

// `block_bytes` of KV, `fixed` of everything else; `flag` gives the memory.
Error does_not_fit(const MemoryPlan& plan, int64_t fixed, int64_t block_bytes, int64_t needed_len,
                   const std::string& flag) {
  return {ErrorCode::kResourceExhausted,
          fmt::format(
              "the model does not fit: weights and workspaces take {}, KV for one sequence of "
              "{} tokens makes it {}, the plan has {}. Raise --{}, which gives {} now, or lower "
              "--max-model-len, --max-num-batched-tokens or --max-num-seqs",
              format_bytes(fixed), needed_len,
              format_bytes(fixed + blocks_of(needed_len, plan.block_tokens) * block_bytes),
              format_bytes(fixed + plan.executor.kv_bytes), flag, format_bytes(plan.memory_bytes)),
          flag};
}

// The number of blocks is that of --num-kv-blocks; `flag` gives the memory.
Error blocks_do_not_fit(const MemoryPlan& plan, int64_t block_bytes, const std::string& flag) {
  const int64_t fixed = plan.total_bytes - plan.executor.kv_bytes;
  const int64_t free = std::max<int64_t>(plan.memory_bytes - fixed, 0);
  return {
      ErrorCode::kResourceExhausted,
      fmt::format("--num-kv-blocks {} takes {}; beside weights and workspaces {} are free: give "
                  "at most {}, or raise --{}, which gives {} now",
                  plan.kv_blocks, format_bytes(plan.executor.kv_bytes), format_bytes(free),
                  free / block_bytes, flag, format_bytes(plan.memory_bytes)),
      "num-kv-blocks"};
}

Error too_few_blocks(const MemoryPlan& plan, int64_t needed_len) {
  return {ErrorCode::kInvalidArgument,
          fmt::format(
              "--num-kv-blocks {} holds {} tokens, and --max-model-len is {}: give at least "
              "{} blocks, or lower --max-model-len",
              plan.kv_blocks, plan.kv_tokens, needed_len, blocks_of(needed_len, plan.block_tokens)),
          "num-kv-blocks"};
}

void append_rows(const std::vector<MemoryPlanRow>& rows, int64_t total, int64_t memory,
                 std::string& text) {
  for (const MemoryPlanRow& row : rows) {
    fmt::format_to(std::back_inserter(text), "  {:<28}{:>12}\n", row.what, format_bytes(row.bytes));
  }
  fmt::format_to(std::back_inserter(text), "  {:<28}{:>12} of {}\n", "in all", format_bytes(total),
                 format_bytes(memory));
}

}  // namespace

Result<MemoryPlan> plan_memory(const model::ModelConfig& config, const MemoryPlanInput& input) {
  MemoryPlan plan;
  plan.executor = input.executor;
  plan.memory_bytes = input.memory_bytes;
  if (input.host_memory_bytes > 0) {
    plan.executor.host.sequences = input.offloaded_sequences;
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
  plan.executor.served_positions = wanted_len;
  plan.executor.host.kv_bytes = most_host_blocks(input, layout, wanted_len) * layout.block_bytes();
  // Block tables and histories are a part of a step's input, so the more blocks there are, the more
  // memory is taken beside them: reckoned with as many as there would be without.
  const bool blocks_given = input.executor.kv_bytes > 0;
  int64_t blocks = 0;
  int64_t fixed = 0;
  HostTierPlan tier;
  for (int pass = 0; pass < 2; ++pass) {
    tier = {};
    plan.rows = fixed_rows(config, input, plan.executor, tier);
    fixed = sum_of(plan.rows);
    blocks = std::max<int64_t>(input.memory_bytes - fixed, 0) / layout.block_bytes();
    blocks = std::min(blocks, useful_blocks(wanted_len, layout.block_tokens, input.max_running));
    if (blocks_given) {
      blocks = input.executor.kv_bytes / layout.block_bytes();
    }
    blocks = std::min<int64_t>(blocks, INT32_MAX);
    if (pass == 0) {
      plan.executor.kv_bytes = blocks * layout.block_bytes();
    }
  }
  plan.kv_blocks = blocks;
  plan.kv_tokens = blocks * layout.block_tokens;
  plan.executor.kv_bytes = blocks * layout.block_bytes();

  const int64_t needed_len = input.max_model_len > 0 ? input.max_model_len : 1;
  if (plan.kv_tokens < needed_len) {
    if (blocks_given) {
      return too_few_blocks(plan, needed_len);
    }
    return does_not_fit(plan, fixed, layout.block_bytes(), needed_len, input.flags.device);
  }
  plan.max_model_len = static_cast<int32_t>(std::min<int64_t>(wanted_len, plan.kv_tokens));
  plan.executor.served_positions = plan.max_model_len;
  ASSIGN_OR_RETURN(plan.host, plan_host(plan, input, tier.host));
  plan.executor.host.kv_bytes = plan.host.kv_bytes;
  fill_rows(config, input, plan);
  if (plan.total_bytes > input.memory_bytes) {
    const int64_t left = input.memory_bytes - (plan.total_bytes - plan.executor.kv_bytes);
    const bool some_fit = left >= blocks_of(needed_len, plan.block_tokens) * layout.block_bytes();
    if (blocks_given && some_fit) {
      return blocks_do_not_fit(plan, layout.block_bytes(), input.flags.device);
    }
    return does_not_fit(plan, plan.total_bytes - plan.executor.kv_bytes, layout.block_bytes(),
                        needed_len, input.flags.device);
  }
  return plan;
}

int64_t useful_host_bytes(const model::ModelConfig& config, const MemoryPlanInput& input) {
  const kernels::KvLayout layout = kv_layout_for(config, input.executor);
  const int32_t length = input.max_model_len > 0 ? input.max_model_len : config.max_positions;
  return useful_blocks(length, layout.block_tokens, input.offloaded_sequences) *
             layout.block_bytes() +
         kMaxHostBufferBytes;
}

std::string format_plan(const MemoryPlan& plan) {
  const bool two_tiers = !plan.host.rows.empty();
  std::string text = two_tiers ? "accelerator\n" : "";
  append_rows(plan.rows, plan.total_bytes, plan.memory_bytes, text);
  fmt::format_to(std::back_inserter(text),
                 "  KV holds {} tokens in {} blocks of {}; a sequence may have {} tokens",
                 plan.kv_tokens, plan.kv_blocks, plan.block_tokens, plan.max_model_len);
  if (two_tiers) {
    text += "\nhost\n";
    append_rows(plan.host.rows, plan.host.total_bytes, plan.host.memory_bytes, text);
    text += "  " + host_advice(plan);
  }
  return text;
}

std::string host_advice(const MemoryPlan& plan) {
  const HostMemoryPlan& host = plan.host;
  if (host.rows.empty()) {
    return "";
  }
  const int64_t each = blocks_of(plan.max_model_len, plan.block_tokens);
  const int64_t held = host.kv_blocks / each;
  const int64_t missing = host.offloaded_sequences - held;
  std::string text = fmt::format(
      "host KV holds {} tokens in {} blocks: {} sequences of {} tokens, {} may be offloaded at a "
      "time",
      host.kv_blocks * plan.block_tokens, host.kv_blocks, held, plan.max_model_len,
      host.offloaded_sequences);
  if (missing > 0) {
    const int64_t wanted =
        host.total_bytes + (host.offloaded_sequences * each - host.kv_blocks) * host.block_bytes;
    fmt::format_to(std::back_inserter(text), "; raise --host-memory by {} to hold {} more",
                   format_bytes(std::max<int64_t>(wanted - host.memory_bytes, host.block_bytes)),
                   missing);
  }
  return text;
}

}  // namespace tandem
