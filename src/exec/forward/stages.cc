#include "exec/forward/stages.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace tandem {
namespace {

// Ops that move rows move bits: two bf16 travel as one float. Rows are whole cache lines.
int64_t as_floats(int64_t elements, ElementType type) {
  return elements * element_bytes(type) / static_cast<int64_t>(sizeof(float));
}
float* as_floats(std::byte* rows) { return reinterpret_cast<float*>(rows); }

}  // namespace

StageStrides stage_strides(const model::ModelConfig& config, const model::Weights& weights) {
  const auto stride = [&weights](int64_t columns, ElementType type) {
    return weights.formats->row_stride(columns, type);
  };
  const int64_t attention = int64_t{config.heads} * weights.padded_head_dim;
  const int64_t qkv = attention + 2 * int64_t{config.kv_heads} * weights.padded_head_dim;
  const device::NumberTypes& numbers = weights.numbers;
  return {.residual = stride(weights.padded_hidden, numbers.residual),
          .normed = stride(weights.padded_hidden, numbers.activation),
          .qkv = stride(qkv, ElementType::kF32),
          .attended = stride(attention, numbers.attended),
          .projected = stride(attention, numbers.activation),
          .activated = stride(weights.padded_intermediate, numbers.activation)};
}

Stages::Stages(const model::ModelConfig& config, const model::Weights& weights,
               const kernels::KvLayout& layout, const StageBuffers& buffers)
    : config_(config),
      weights_(weights),
      layout_(layout),
      buffers_(buffers),
      strides_(stage_strides(config, weights)) {
  for (int32_t layer = 0; layer < config.layers; ++layer) {
    const int32_t window = config.window_of(layer);
    const auto found = std::find(windows_.begin(), windows_.end(), window);
    window_of_layer_.push_back(static_cast<size_t>(found - windows_.begin()));
    if (found == windows_.end()) {
      windows_.push_back(window);
    }
  }
  const int64_t places = buffers.staging_layers == nullptr ? 1 : 2;
  CHECK(std::ssize(windows_) * places <= device::kAttentionPlans,
        "layers with {} different windows", windows_.size());
}

void Stages::launch_stage(device::Device& device, device::StreamId stream, const StepInputs& inputs,
                          ResidentOps& ops, int32_t stage, const TailRows& tail) const {
  CHECK(stage >= 0 && stage < config_.layers, "stage {} of {}", stage, config_.layers);
  const int64_t residents = tail.alone ? 0 : inputs.rows;
  const Target all{device, stream, residents + tail.rows};
  const Target visitors{device, stream, tail.rows};
  if (stage == 0) {
    const TokenRows tokens{inputs.ids, inputs.positions, 0};
    embed({device, stream, residents}, tokens);
    rope_table({device, stream, residents}, tokens);
    if (tail.rows > 0) {
      embed(visitors, {tail.ids, tail.positions, inputs.rows});
    }
  } else {
    const int64_t first_row = inputs.rows - residents;
    const int64_t pitch = strides_.attended * element_bytes(weights_.numbers.attended);
    const Rows rows{buffers_.residual + first_row * residual_pitch(),
                    buffers_.attended + first_row * pitch};
    if (tail.rows > 0) {
      gather_tail(visitors, rows, residents, tail);
    }
    post_attention(all, rows, stage - 1);
  }
  if (tail.rows > 0) {
    rope_table(visitors, {tail.ids, tail.positions, inputs.rows});
  }
  pre_attention(all, inputs, ops, stage, tail);
}

void Stages::launch_last_stage(device::Device& device, device::StreamId stream,
                               const StepInputs& inputs, const TailRows& tail) const {
  const int64_t residents = tail.alone ? 0 : inputs.sample_count;
  const Target sampled{device, stream, residents + tail.rows};
  const Rows rows = gather_sampled({device, stream, residents}, inputs);
  if (tail.rows > 0) {
    gather_tail({device, stream, tail.rows}, rows, residents, tail);
  }
  post_attention(sampled, rows, config_.layers - 1);
  head(sampled, rows.residual);
}

void Stages::prepare(device::Device& device, device::StreamId stream, const StepInputs& inputs,
                     bool attends, ResidentOps& ops) const {
  prepare(inputs, inputs.pooled, {.kv = buffers_.kv, .layout = layout_}, ops.pooled);
  prepare(inputs, inputs.staged,
          {.kv = buffers_.staging_layers,
           .layout = staging_layout(layout_),
           .first_row = inputs.pooled.shape.rows,
           .first_plan = windows_.size()},
          ops.staged);
  if (!attends) {
    return;
  }
  for (const KvOps* kv : {&ops.pooled, &ops.staged}) {
    for (const device::Op& attend : kv->attend) {
      const auto& batch = std::get<device::AttentionOp>(attend).batch;
      device.launch(stream, device::AttentionPlanOp{batch});
    }
  }
}

void Stages::prepare(const StepInputs& inputs, const SliceInputs& slices, const KvPlace& place,
                     KvOps& ops) const {
  ops.attend.clear();
  if (slices.shape.rows == 0) {
    return;
  }
  const int64_t half_dim = config_.head_dim / 2;
  const int64_t columns = int64_t{config_.heads} * weights_.padded_head_dim;
  const int64_t pitch = strides_.attended * element_bytes(weights_.numbers.attended);
  const ElementType q_type = weights_.formats->query_type(layout_, weights_.numbers.attended);
  std::byte* q = buffers_.q + place.first_row * columns * element_bytes(q_type);
  ops.write = device::RopeWriteOp{.qkv = buffers_.qkv + place.first_row * strides_.qkv,
                                  .qkv_stride = strides_.qkv,
                                  .rows = slices.shape.rows,
                                  .cos = buffers_.cos + place.first_row * half_dim,
                                  .sin = buffers_.sin + place.first_row * half_dim,
                                  .heads = config_.heads,
                                  .layout = place.layout,
                                  .kv = place.kv,
                                  .blocks = inputs.blocks + place.first_row,
                                  .slots = inputs.slots + place.first_row,
                                  .q = q,
                                  .q_type = q_type,
                                  .norm_epsilon = config_.rms_epsilon};
  for (const int32_t window : windows_) {
    const device::AttentionBatch batch = {
        .slices = slices.slices,
        .host_slices = slices.host_slices,
        .shape = slices.shape,
        .layout = place.layout,
        .heads = config_.heads,
        .window = window,
        .workspace = buffers_.attention_workspace,
        .workspace_floats = buffers_.attention_workspace_floats,
        .plan = static_cast<int32_t>(place.first_plan + ops.attend.size())};
    ops.attend.emplace_back(
        device::AttentionOp{.batch = batch,
                            .q = q,
                            .q_type = q_type,
                            .kv = place.kv,
                            .scale = 1.0F / std::sqrt(static_cast<float>(config_.head_dim)),
                            .out = buffers_.attended + place.first_row * pitch,
                            .out_stride = strides_.attended,
                            .out_type = weights_.numbers.attended});
  }
}

void Stages::launch_attention(device::Device& device, device::StreamId stream,
                              const StepInputs& inputs, ResidentOps& ops, int32_t layer) const {
  const size_t window = window_of_layer_[static_cast<size_t>(layer)];
  const auto launch = [&](device::Op& op, int32_t kv_layer) {
    std::get<device::AttentionOp>(op).layer = kv_layer;
    device.launch(stream, op);
  };
  if (inputs.pooled.shape.rows > 0) {
    launch(ops.pooled.attend[window], layer);
  }
  if (inputs.staged.shape.rows > 0) {
    launch(ops.staged.attend[window], layer % kStagingLayers);
  }
}

void Stages::embed(const Target& target, const TokenRows& tokens) const {
  if (target.rows == 0) {
    return;
  }
  target.device.launch(target.stream,
                       device::EmbedOp{.ids = tokens.ids,
                                       .rows = target.rows,
                                       .table = weights_.embedding,
                                       .y = buffers_.residual + tokens.first_row * residual_pitch(),
                                       .y_type = weights_.numbers.residual,
                                       .y_stride = strides_.residual});
}

void Stages::rope_table(const Target& target, const TokenRows& tokens) const {
  if (target.rows == 0) {
    return;
  }
  const auto factor = static_cast<float>(model::rope_attention_factor(config_));
  const int64_t half_dim = config_.head_dim / 2;
  target.device.launch(target.stream,
                       device::RopeTableOp{.positions = tokens.positions,
                                           .rows = target.rows,
                                           .inverse_frequency = buffers_.inverse_frequency,
                                           .half_dim = half_dim,
                                           .attention_factor = factor,
                                           .cos = buffers_.cos + tokens.first_row * half_dim,
                                           .sin = buffers_.sin + tokens.first_row * half_dim});
}

void Stages::norm(const Target& target, const std::byte* residual, const float* weight) const {
  target.device.launch(target.stream, device::RmsNormOp{.x = residual,
                                                        .x_type = weights_.numbers.residual,
                                                        .x_stride = strides_.residual,
                                                        .rows = target.rows,
                                                        .hidden = config_.hidden,
                                                        .weight = weight,
                                                        .epsilon = config_.rms_epsilon,
                                                        .y = buffers_.normed,
                                                        .y_type = weights_.numbers.activation,
                                                        .y_stride = strides_.normed});
}

void Stages::pre_attention(const Target& target, const StepInputs& inputs, ResidentOps& ops,
                           int32_t layer, const TailRows& tail) const {
  const model::LayerWeights& own = weights_.layers[static_cast<size_t>(layer)];
  const int64_t first_row = tail.alone ? inputs.rows : 0;
  norm(target, buffers_.residual + first_row * residual_pitch(), own.attention_norm);
  target.device.launch(target.stream, device::GemmOp{.x = buffers_.normed,
                                                     .x_type = weights_.numbers.activation,
                                                     .x_stride = strides_.normed,
                                                     .rows = target.rows,
                                                     .w = own.qkv,
                                                     .bias = own.qkv_bias,
                                                     .y = buffers_.qkv + first_row * strides_.qkv,
                                                     .y_stride = strides_.qkv});
  if (!tail.alone && inputs.pooled.shape.rows > 0) {
    write_kv(target, ops.pooled, layer, layer);
  }
  if (!tail.alone && inputs.staged.shape.rows > 0) {
    write_kv(target, ops.staged, layer, layer % kStagingLayers);
  }
  if (tail.rows > 0) {
    route_tail({target.device, target.stream, tail.rows}, inputs.rows, layer, tail);
  }
}

void Stages::write_kv(const Target& target, KvOps& ops, int32_t layer, int32_t kv_layer) const {
  const model::LayerWeights& own = weights_.layers[static_cast<size_t>(layer)];
  auto& write = std::get<device::RopeWriteOp>(ops.write);
  write.layer = kv_layer;
  write.q_norm = own.q_norm;
  write.k_norm = own.k_norm;
  target.device.launch(target.stream, ops.write);
}

void Stages::route_tail(const Target& target, int64_t first_row, int32_t layer,
                        const TailRows& tail) const {
  const model::LayerWeights& own = weights_.layers[static_cast<size_t>(layer)];
  const int64_t half_dim = config_.head_dim / 2;
  const ElementType residual = weights_.numbers.residual;
  target.device.launch(
      target.stream,
      device::RopeRouteOp{.qkv = buffers_.qkv + first_row * strides_.qkv,
                          .qkv_stride = strides_.qkv,
                          .rows = target.rows,
                          .cos = buffers_.cos + first_row * half_dim,
                          .sin = buffers_.sin + first_row * half_dim,
                          .heads = config_.heads,
                          .layout = layout_,
                          .q_norm = own.q_norm,
                          .k_norm = own.k_norm,
                          .norm_epsilon = config_.rms_epsilon,
                          .ring = buffers_.ring,
                          .ring_rows = tail.ring_rows,
                          .residual = as_floats(buffers_.residual + first_row * residual_pitch()),
                          .residual_stride = as_floats(strides_.residual, residual),
                          .residual_columns = as_floats(weights_.padded_hidden, residual),
                          .residual_store = as_floats(buffers_.residual_store),
                          .store_stride = as_floats(strides_.residual, residual),
                          .residual_slots = tail.slots});
}

void Stages::gather_tail(const Target& target, const Rows& rows, int64_t first_row,
                         const TailRows& tail) const {
  const int64_t element = element_bytes(weights_.numbers.attended);
  const int64_t pitch = strides_.attended * element;
  const ElementType residual = weights_.numbers.residual;
  target.device.launch(
      target.stream,
      device::TailGatherOp{
          .rows = target.rows,
          .returns = buffers_.returns,
          .attended_row_bytes = int64_t{config_.heads} * weights_.padded_head_dim * element,
          .return_rows = tail.return_rows,
          .attended = rows.attended + first_row * pitch,
          .attended_pitch_bytes = pitch,
          .residual_store = as_floats(buffers_.residual_store),
          .store_stride = as_floats(strides_.residual, residual),
          .residual_slots = tail.slots,
          .residual = as_floats(rows.residual + first_row * residual_pitch()),
          .residual_stride = as_floats(strides_.residual, residual),
          .residual_columns = as_floats(weights_.padded_hidden, residual)});
}

Stages::Projected Stages::cast_attended(const Target& target, const std::byte* attended) const {
  if (!casts_attended(weights_)) {
    return {attended, strides_.attended};
  }
  target.device.launch(target.stream,
                       device::CastOp{.x = attended,
                                      .x_type = weights_.numbers.attended,
                                      .x_stride = strides_.attended,
                                      .rows = target.rows,
                                      .columns = int64_t{config_.heads} * weights_.padded_head_dim,
                                      .y = buffers_.projected,
                                      .y_type = weights_.numbers.activation,
                                      .y_stride = strides_.projected});
  return {buffers_.projected, strides_.projected};
}

void Stages::add_product(const Target& target, const Projected& x, const device::WeightMatrix& w,
                         std::byte* residual) const {
  target.device.launch(target.stream, device::GemmOp{.x = x.data,
                                                     .x_type = weights_.numbers.activation,
                                                     .x_stride = x.stride,
                                                     .rows = target.rows,
                                                     .w = w,
                                                     .y = residual,
                                                     .y_type = weights_.numbers.residual,
                                                     .y_stride = strides_.residual,
                                                     .accumulate = true});
}

void Stages::post_attention(const Target& target, const Rows& rows, int32_t layer) const {
  const model::LayerWeights& own = weights_.layers[static_cast<size_t>(layer)];
  add_product(target, cast_attended(target, rows.attended), own.output, rows.residual);
  norm(target, rows.residual, own.mlp_norm);
  target.device.launch(target.stream, device::GateUpOp{.x = buffers_.normed,
                                                       .x_type = weights_.numbers.activation,
                                                       .x_stride = strides_.normed,
                                                       .rows = target.rows,
                                                       .w = own.gate_up,
                                                       .activated = buffers_.activated,
                                                       .activated_stride = strides_.activated});
  add_product(target, {buffers_.activated, strides_.activated}, own.down, rows.residual);
}

Stages::Rows Stages::gather_sampled(const Target& target, const StepInputs& inputs) const {
  if (target.rows == 0) {
    return {buffers_.sampled_residual, buffers_.sampled_attended};
  }
  if (inputs.every_row_is_sampled_in_order) {
    return {buffers_.residual, buffers_.attended};
  }
  const auto gather = [&](std::byte* from, int64_t stride, ElementType type, std::byte* to) {
    target.device.launch(target.stream, device::RowGatherOp{.x = as_floats(from),
                                                            .stride = as_floats(stride, type),
                                                            .rows = inputs.sampled_rows,
                                                            .count = target.rows,
                                                            .y = as_floats(to)});
  };
  gather(buffers_.residual, strides_.residual, weights_.numbers.residual,
         buffers_.sampled_residual);
  gather(buffers_.attended, strides_.attended, weights_.numbers.attended,
         buffers_.sampled_attended);
  return {buffers_.sampled_residual, buffers_.sampled_attended};
}

void Stages::head(const Target& target, const std::byte* residual) const {
  norm(target, residual, weights_.final_norm);
  target.device.launch(target.stream, device::GemmOp{.x = buffers_.normed,
                                                     .x_type = weights_.numbers.activation,
                                                     .x_stride = strides_.normed,
                                                     .rows = target.rows,
                                                     .w = weights_.lm_head,
                                                     .y = buffers_.logits,
                                                     .y_stride = weights_.padded_vocabulary});
}

}  // namespace tandem
