#include "exec/forward/stages.h"

#include <cmath>

#include "base/check.h"

namespace tandem {

StageStrides stage_strides(const model::ModelConfig& config, const model::Weights& weights) {
  using kernels::spread_stride;
  const int64_t attention = int64_t{config.heads} * weights.padded_head_dim;
  const int64_t qkv = attention + 2 * int64_t{config.kv_heads} * weights.padded_head_dim;
  return {.residual = spread_stride(weights.padded_hidden, ElementType::kF32),
          .normed = spread_stride(weights.padded_hidden, weights.type),
          .qkv = spread_stride(qkv, ElementType::kF32),
          .attended = spread_stride(attention, weights.type),
          .activated = spread_stride(weights.padded_intermediate, weights.type)};
}

void Stages::launch_stage(device::Device& device, device::StreamId stream, const StepInputs& inputs,
                          int32_t stage) const {
  CHECK(stage >= 0 && stage <= config_.layers, "stage {} of {}", stage, config_.layers + 1);
  const Target all{device, stream, inputs.rows};
  if (stage == config_.layers) {
    const Target sampled{device, stream, inputs.sample_count};
    const Rows rows = gather_sampled(sampled, inputs);
    post_attention(sampled, rows, stage - 1);
    head(sampled, rows.residual);
    return;
  }
  if (stage == 0) {
    embed(all, inputs);
  } else {
    post_attention(all, {buffers_.residual, buffers_.attended}, stage - 1);
  }
  pre_attention(all, inputs, stage);
}

void Stages::launch_attention(device::Device& device, device::StreamId stream,
                              const StepInputs& inputs, int32_t layer) const {
  device.launch(
      stream, device::AttentionOp{{.q = buffers_.q,
                                   .kv = buffers_.kv,
                                   .layout = layout_,
                                   .layer = layer,
                                   .heads = config_.heads,
                                   .scale = 1.0F / std::sqrt(static_cast<float>(config_.head_dim)),
                                   .window = config_.window_of(layer),
                                   .slices = inputs.slices,
                                   .slice_count = inputs.slice_count,
                                   .out = buffers_.attended,
                                   .out_stride = strides_.attended,
                                   .out_type = weights_.type,
                                   .partials = nullptr}});
}

void Stages::embed(const Target& target, const StepInputs& inputs) const {
  target.device.launch(target.stream, kernels::EmbedArgs{.ids = inputs.ids,
                                                         .rows = target.rows,
                                                         .table = weights_.embedding,
                                                         .y = buffers_.residual,
                                                         .y_stride = strides_.residual});
  const auto factor = static_cast<float>(model::rope_attention_factor(config_));
  target.device.launch(target.stream,
                       kernels::RopeTableArgs{.positions = inputs.positions,
                                              .rows = target.rows,
                                              .inverse_frequency = buffers_.inverse_frequency,
                                              .half_dim = config_.head_dim / 2,
                                              .attention_factor = factor,
                                              .cos = buffers_.cos,
                                              .sin = buffers_.sin});
}

void Stages::norm(const Target& target, const float* x, const float* weight) const {
  target.device.launch(target.stream, kernels::RmsNormArgs{.x = x,
                                                           .x_stride = strides_.residual,
                                                           .rows = target.rows,
                                                           .hidden = config_.hidden,
                                                           .weight = weight,
                                                           .epsilon = config_.rms_epsilon,
                                                           .y = buffers_.normed,
                                                           .y_type = weights_.type,
                                                           .y_stride = strides_.normed});
}

void Stages::pre_attention(const Target& target, const StepInputs& inputs, int32_t layer) const {
  const model::LayerWeights& own = weights_.layers[static_cast<size_t>(layer)];
  norm(target, buffers_.residual, own.attention_norm);
  target.device.launch(target.stream, kernels::GemmArgs{.x = buffers_.normed,
                                                        .x_stride = strides_.normed,
                                                        .rows = target.rows,
                                                        .w = own.qkv,
                                                        .bias = own.qkv_bias,
                                                        .y = buffers_.qkv,
                                                        .y_stride = strides_.qkv});
  target.device.launch(target.stream, kernels::RopeWriteArgs{.qkv = buffers_.qkv,
                                                             .qkv_stride = strides_.qkv,
                                                             .rows = target.rows,
                                                             .cos = buffers_.cos,
                                                             .sin = buffers_.sin,
                                                             .heads = config_.heads,
                                                             .layout = layout_,
                                                             .layer = layer,
                                                             .kv = buffers_.kv,
                                                             .blocks = inputs.blocks,
                                                             .slots = inputs.slots,
                                                             .q = buffers_.q,
                                                             .q_norm = own.q_norm,
                                                             .k_norm = own.k_norm,
                                                             .norm_epsilon = config_.rms_epsilon});
}

void Stages::post_attention(const Target& target, const Rows& rows, int32_t layer) const {
  const model::LayerWeights& own = weights_.layers[static_cast<size_t>(layer)];
  target.device.launch(target.stream, kernels::GemmArgs{.x = rows.attended,
                                                        .x_stride = strides_.attended,
                                                        .rows = target.rows,
                                                        .w = own.output,
                                                        .y = rows.residual,
                                                        .y_stride = strides_.residual,
                                                        .store = kernels::GemmStore::kAdd});
  norm(target, rows.residual, own.mlp_norm);
  target.device.launch(target.stream, kernels::GemmArgs{.x = buffers_.normed,
                                                        .x_stride = strides_.normed,
                                                        .rows = target.rows,
                                                        .w = own.gate_up,
                                                        .y_stride = strides_.activated,
                                                        .store = kernels::GemmStore::kSiluMul,
                                                        .activated = buffers_.activated});
  target.device.launch(target.stream, kernels::GemmArgs{.x = buffers_.activated,
                                                        .x_stride = strides_.activated,
                                                        .rows = target.rows,
                                                        .w = own.down,
                                                        .y = rows.residual,
                                                        .y_stride = strides_.residual,
                                                        .store = kernels::GemmStore::kAdd});
}

Stages::Rows Stages::gather_sampled(const Target& target, const StepInputs& inputs) const {
  if (inputs.every_row_is_sampled_in_order) {
    return {buffers_.residual, buffers_.attended};
  }
  target.device.launch(target.stream, kernels::RowGatherArgs{.x = buffers_.residual,
                                                             .stride = strides_.residual,
                                                             .rows = inputs.sampled_rows,
                                                             .count = target.rows,
                                                             .y = buffers_.sampled_residual});
  // A gather moves bits: two bf16 travel as one float. Rows are whole cache lines.
  constexpr int64_t kFloatBytes = sizeof(float);
  target.device.launch(target.stream,
                       kernels::RowGatherArgs{
                           .x = reinterpret_cast<const float*>(buffers_.attended),
                           .stride = strides_.attended * element_bytes(weights_.type) / kFloatBytes,
                           .rows = inputs.sampled_rows,
                           .count = target.rows,
                           .y = reinterpret_cast<float*>(buffers_.sampled_attended)});
  return {buffers_.sampled_residual, buffers_.sampled_attended};
}

void Stages::head(const Target& target, const float* residual) const {
  norm(target, residual, weights_.final_norm);
  target.device.launch(target.stream, kernels::GemmArgs{.x = buffers_.normed,
                                                        .x_stride = strides_.normed,
                                                        .rows = target.rows,
                                                        .w = weights_.lm_head,
                                                        .y = buffers_.logits,
                                                        .y_stride = weights_.padded_vocabulary});
}

}  // namespace tandem
