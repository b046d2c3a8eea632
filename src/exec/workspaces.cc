#include "exec/workspaces.h"

#include <algorithm>

#include "exec/batch_layout.h"
#include "exec/step_sampling.h"
#include "exec/visitor_layout.h"
#include "kernels/routed_row.h"
#include "request/sampling_limits.h"

namespace tandem {
namespace {

constexpr int64_t kAlignment = 64;

int64_t blocks_of(int64_t tokens, const kernels::KvLayout& layout) {
  return (tokens + layout.block_tokens - 1) / layout.block_tokens;
}

// The most that the samples of a step can bring with them, of sequences whose KV is in a pool of
// `pool_blocks`. Each lists all that a request may list; their histories are made of blocks of the
// pool, each of which is there once.
StepSize most_samples(const model::ModelConfig& config, const ExecutorOptions& options,
                      int64_t pool_blocks) {
  const kernels::KvLayout layout = kv_layout_for(config, options);
  const int64_t samples = options.max_logit_rows;
  const int64_t tables = samples * blocks_of(longest_context(config, options), layout);
  return {.samples = samples,
          .banned = samples * (int64_t{kMostStopTokenIds} + options.end_tokens),
          .biases = samples * kMostLogitBiases,
          .history_tokens = std::min(pool_blocks, tables) * layout.block_tokens,
          .history_tables = tables};
}

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
  const int64_t activation = element_bytes(weights.numbers.activation);
  const int64_t attended = element_bytes(weights.numbers.attended);
  const int64_t attention = int64_t{config.heads} * weights.padded_head_dim;
  const StageStrides strides = stage_strides(config, weights);
  const int64_t half_dim = config.head_dim / 2;
  StageBuffers buffers;
  const int64_t residual = strides.residual * element_bytes(weights.numbers.residual);
  buffers.residual = carver.take(rows * residual);
  buffers.normed = carver.take(most_rows * strides.normed * activation);
  buffers.qkv = carver.take_floats(rows * strides.qkv);
  const ElementType query =
      weights.formats->query_type(kv_layout_for(config, options), weights.numbers.attended);
  buffers.q = carver.take(rows * attention * element_bytes(query));
  buffers.attended = carver.take(rows * strides.attended * attended);
  buffers.activated = carver.take(most_rows * strides.activated * activation);
  buffers.cos = carver.take_floats(rows * half_dim);
  buffers.sin = carver.take_floats(rows * half_dim);
  buffers.inverse_frequency =
      reinterpret_cast<double*>(carver.take(half_dim * static_cast<int64_t>(sizeof(double))));
  buffers.sampled_residual = carver.take(samples * residual);
  buffers.sampled_attended = carver.take(samples * strides.attended * attended);
  if (casts_attended(weights)) {
    buffers.projected = carver.take(most_rows * strides.projected * activation);
  }
  return buffers;
}

}  // namespace

void use_threads(const device::Device& device, ExecutorOptions& options) {
  if (options.compute_threads == 0) {
    options.compute_threads = device.caps().threads;
  }
  if (options.host.threads == 0) {
    options.host.threads = std::max(static_cast<int32_t>(device.host().cpus.size()), 1);
  }
}

int32_t longest_context(const model::ModelConfig& config, const ExecutorOptions& options) {
  const int64_t served =
      options.served_positions > 0 ? options.served_positions : config.max_positions;
  const kernels::KvLayout layout = kv_layout_for(config, options);
  return static_cast<int32_t>(
      std::min(served, total_blocks(layout, options) * layout.block_tokens));
}

piggyback::PartialRooms partial_rooms(const model::ModelConfig& config,
                                      const ExecutorOptions& options) {
  return piggyback::partial_rooms(kv_layout_for(config, options), config.heads,
                                  longest_context(config, options),
                                  std::max(options.host.threads, 1));
}

int32_t staging_blocks(const kernels::KvLayout& layout, const ExecutorOptions& options) {
  return plans_host_tier(options)
             ? static_cast<int32_t>(blocks_of(options.host.staging_tokens, layout))
             : 0;
}

int64_t total_blocks(const kernels::KvLayout& layout, const ExecutorOptions& options) {
  return options.kv_bytes / layout.block_bytes();
}

WorkspaceSizes workspace_sizes(const model::ModelConfig& config, const model::Weights& weights,
                               const ExecutorOptions& options) {
  Carver activations(nullptr);
  carve(config, weights, options, activations);
  const int64_t samples = options.max_logit_rows;
  const kernels::KvLayout layout = kv_layout_for(config, options);
  const int64_t longest = longest_context(config, options);
  // A sequence has at most one slice, and there are no more sequences than rows of logits.
  const int64_t slices = std::min(options.max_batched_tokens, options.max_logit_rows);
  StepSize largest = most_samples(config, options,
                                  total_blocks(layout, options) + staging_blocks(layout, options));
  largest.rows = options.max_batched_tokens;
  largest.slices = slices;
  largest.table_blocks = slices * blocks_of(longest, layout);
  largest.scored = options.max_batched_tokens;
  const int64_t results = StepSampling::result_bytes(samples);
  return {.activations = activations.used(),
          .logits = samples * weights.padded_vocabulary * static_cast<int64_t>(sizeof(float)),
          .staging = staging_bytes(largest, {.max_batched_tokens = options.max_batched_tokens,
                                             .max_logit_rows = options.max_logit_rows}),
          .partials = weights.formats->attention_workspace_bytes(
              {.layout = layout,
               .heads = config.heads,
               .max_context = longest,
               .threads = std::max(options.compute_threads, 1)}),
          .device_results = results,
          .host_results = results,
          .host_scores = StepSampling::score_bytes(options.max_batched_tokens)};
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
      int64_t{config.heads} * weights.padded_head_dim * element_bytes(weights.numbers.attended);
  sizes.ring = limits.ring_rows * sizes.routed_row;
  sizes.returns = limits.hop_rows * sizes.attended_row;
  sizes.residual_store = limits.slots * stage_strides(config, weights).residual *
                         element_bytes(weights.numbers.residual);
  sizes.staging_layers = staging_blocks(layout, options) * staging_layout(layout).block_bytes();
  sizes.group_staging = visitor_bytes(limits.slots);
  sizes.sample_staging = SampleRowWriter::bytes(
      most_samples(config, options, options.host.kv_bytes / layout.block_bytes()));
  sizes.outbox = limits.hop_rows * sizes.routed_row;
  sizes.results = limits.hop_rows * sizes.attended_row;
  sizes.partials = partial_rooms(config, options).bytes();
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
  std::vector<MemoryPlanRow> rows = {
      {"activations", sizes.activations},
      {"logits", sizes.logits},
      {"step inputs", sizes.staging * kStagedSteps * (one_tier ? 2 : 1)},
      {"partial attention", sizes.partials},
      {"sampled tokens", sizes.device_results + (one_tier ? sizes.host_results : 0)}};
  if (one_tier) {
    rows.push_back({"scored prompt tokens", sizes.host_scores});
  }
  return rows;
}

HostTierPlan plan_host_tier(const model::ModelConfig& config, const model::Weights& weights,
                            const ExecutorOptions& options) {
  const WorkspaceSizes sizes = workspace_sizes(config, weights, options);
  const HostTierSizes tier = host_tier_sizes(config, weights, options);
  const int64_t visitors =
      tier.group_staging * kStagedGroups + tier.sample_staging * kStagedSamples;
  HostTierPlan plan = {.accelerator = {{"visitors' inputs", visitors},
                                       {"rows to the host", tier.ring},
                                       {"results from the host", tier.returns},
                                       {"residuals of offloaded", tier.residual_store}},
                       .host = {{"step inputs", sizes.staging * kStagedSteps},
                                {"visitors' inputs", visitors},
                                {"sampled tokens", sizes.host_results},
                                {"scored prompt tokens", sizes.host_scores},
                                {"rows from the accelerator", tier.outbox},
                                {"attention results", tier.results},
                                {"partial attention", tier.partials}}};
  if (tier.staging_layers > 0) {
    plan.accelerator.push_back({"staging layers", tier.staging_layers});
  }
  return plan;
}

}  // namespace tandem
