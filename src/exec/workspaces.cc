#include "exec/workspaces.h"

#include <algorithm>

#include "exec/batch_layout.h"
#include "exec/step_sampling.h"
#include "exec/visitor_layout.h"
#include "kernels/routed_row.h"

namespace tandem {
namespace {

// Tokens of penalty histories and bans that a sample has room for before staging must grow.
constexpr int64_t kSamplingTokensPerSample = 256;
constexpr int64_t kAlignment = 64;

// Hands out consecutive aligned pieces; with a null start it only counts.
class Carver {
 public:
  explicit Carver(std::byte* start) : start_(start) {}
  std::byte* take(int64_t bytes) {
    std::byte* piece = start_ == nullptr ? nullptr : start_ + used_;
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return piece;
  }
  float* take_floats(int64_t count) {
    return reinterpret_cast<float*>(take(count * static_cast<int64_t>(sizeof(float))));
  }
  [[nodiscard]] int64_t used() const { return used_; }

 private:
  std::byte* start_;
  int64_t used_ = 0;
};

StageBuffers carve(const model::ModelConfig& config, const model::Weights& weights,
                   const ExecutorOptions& options, Carver& carver) {
  const int64_t rows = options.max_batched_tokens;
  const int64_t samples = options.max_logit_rows;
  const int64_t most_rows = std::max(rows, samples);
  const int64_t element = element_bytes(weights.type);
  const int64_t attention = int64_t{config.heads} * weights.padded_head_dim;
  const StageStrides strides = stage_strides(config, weights);
  const int64_t half_dim = config.head_dim / 2;
  StageBuffers buffers;
  buffers.residual = carver.take_floats(rows * strides.residual);
  buffers.normed = carver.take(most_rows * strides.normed * element);
  buffers.qkv = carver.take_floats(rows * strides.qkv);
  buffers.q = carver.take_floats(rows * attention);
  buffers.attended = carver.take(rows * strides.attended * element);
  buffers.activated = carver.take(most_rows * strides.activated * element);
  buffers.cos = carver.take_floats(rows * half_dim);
  buffers.sin = carver.take_floats(rows * half_dim);
  buffers.inverse_frequency =
      reinterpret_cast<double*>(carver.take(half_dim * static_cast<int64_t>(sizeof(double))));
  buffers.sampled_residual = carver.take_floats(samples * strides.residual);
  buffers.sampled_attended = carver.take(samples * strides.attended * element);
  return buffers;
}

}  // namespace

int64_t total_blocks(const kernels::KvLayout& layout, const ExecutorOptions& options) {
  return options.kv_bytes / layout.block_bytes();
}

WorkspaceSizes workspace_sizes(const model::ModelConfig& config, const model::Weights& weights,
                               const ExecutorOptions& options) {
  Carver activations(nullptr);
  carve(config, weights, options, activations);
  const int64_t samples = options.max_logit_rows;
  const StepSize largest{.rows = options.max_batched_tokens,
                         .slices = options.max_batched_tokens,
                         .samples = samples,
                         .table_blocks = total_blocks(kv_layout_for(config, options), options) +
                                         options.max_batched_tokens,
                         .tokens = samples * kSamplingTokensPerSample,
                         .biases = samples};
  const int64_t results = StepSampling::result_bytes(samples);
  return {.activations = activations.used(),
          .logits = samples * weights.padded_vocabulary * static_cast<int64_t>(sizeof(float)),
          .staging = staging_bytes(largest),
          .device_results = results,
          .host_results = results};
}

piggyback::HopLimits hop_limits(const model::ModelConfig& config, const ExecutorOptions& options) {
  return {
      .slots = options.host.sequences,
      .ring_rows = options.host.ring_rows > 0 ? options.host.ring_rows : options.host.sequences,
      .hop_rows = options.host.hop_rows > 0 ? options.host.hop_rows : 2 * options.host.sequences,
      .last_stage = config.layers};
}

HostTierSizes host_tier_sizes(const model::ModelConfig& config, const model::Weights& weights,
                              const ExecutorOptions& options) {
  if (!plans_host_tier(options)) {
    return {};
  }
  const kernels::KvLayout layout = kv_layout_for(config, options);
  const piggyback::HopLimits limits = hop_limits(config, options);
  HostTierSizes sizes;
  sizes.routed_row = kernels::RoutedRow(layout, config.heads).bytes();
  sizes.attended_row =
      int64_t{config.heads} * weights.padded_head_dim * element_bytes(weights.type);
  sizes.ring = limits.ring_rows * sizes.routed_row;
  sizes.returns = limits.hop_rows * sizes.attended_row;
  sizes.residual_store =
      limits.slots * stage_strides(config, weights).residual * static_cast<int64_t>(sizeof(float));
  const StepSize samples{.samples = options.max_logit_rows,
                         .tokens = options.max_logit_rows * kSamplingTokensPerSample,
                         .biases = options.max_logit_rows};
  sizes.group_staging = visitor_bytes(limits.slots, samples);
  sizes.outbox = limits.hop_rows * sizes.routed_row;
  sizes.results = limits.hop_rows * sizes.attended_row;
  sizes.kv = options.host.kv_bytes / layout.block_bytes() * layout.block_bytes();
  return sizes;
}

StageBuffers place_buffers(const model::ModelConfig& config, const model::Weights& weights,
                           const ExecutorOptions& options, std::byte* activations) {
  Carver carver(activations);
  return carve(config, weights, options, carver);
}

kernels::KvLayout kv_layout_for(const model::ModelConfig& config, const ExecutorOptions& options) {
  constexpr int32_t kSmallestBlockTokens = 32;
  constexpr int64_t kSmallestPieceBytes = int64_t{32} << 10;  // a block of one layer, K and V
  kernels::KvLayout layout{.type = options.kv_type,
                           .layers = config.layers,
                           .kv_heads = config.kv_heads,
                           .head_dim = config.head_dim,
                           .padded_head_dim = static_cast<int32_t>(
                               kernels::round_up(config.head_dim, kernels::kHeadDimMultiple)),
                           .block_tokens = options.block_tokens};
  if (options.block_tokens == 0) {
    layout.block_tokens = kSmallestBlockTokens;
    while (layout.block_tokens < kernels::kSplitTokens &&
           layout.block_bytes() / layout.layers < kSmallestPieceBytes) {
      layout.block_tokens *= 2;
    }
  }
  return layout;
}

std::vector<MemoryPlanRow> plan_workspaces(const model::ModelConfig& config,
                                           const model::Weights& weights,
                                           const ExecutorOptions& options) {
  const WorkspaceSizes sizes = workspace_sizes(config, weights, options);
  const bool one_tier = !plans_host_tier(options);
  return {{"activations", sizes.activations},
          {"logits", sizes.logits},
          {"step inputs", sizes.staging * kStagedSteps * (one_tier ? 2 : 1)},
          {"sampled tokens", sizes.device_results + (one_tier ? sizes.host_results : 0)}};
}

HostTierPlan plan_host_tier(const model::ModelConfig& config, const model::Weights& weights,
                            const ExecutorOptions& options) {
  const WorkspaceSizes sizes = workspace_sizes(config, weights, options);
  const HostTierSizes tier = host_tier_sizes(config, weights, options);
  return {.accelerator = {{"visitors' inputs", tier.group_staging * kStagedGroups},
                          {"rows to the host", tier.ring},
                          {"results from the host", tier.returns},
                          {"residuals of offloaded", tier.residual_store}},
          .host = {{"step inputs", sizes.staging * kStagedSteps},
                   {"visitors' inputs", tier.group_staging * kStagedGroups},
                   {"sampled tokens", sizes.host_results},
                   {"rows from the accelerator", tier.outbox},
                   {"attention results", tier.results}}};
}

}  // namespace tandem
