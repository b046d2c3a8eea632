#include "model/weight_plan.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "kernels/kv_layout.h"

namespace tandem::model {
namespace {

using device::WeightMatrix;
using kernels::PaddedDim;
using kernels::round_up;

constexpr int64_t kAlignment = 64;

PaddedDim whole(int64_t size, int64_t multiple) { return {size, size, round_up(size, multiple)}; }

class Planner {
 public:
  Planner(const ModelConfig& config, const WeightFormats& format, const device::Formats& formats,
          std::span<std::byte* const> pieces)
      : config_(config),
        format_(format),
        formats_(formats),
        pieces_(pieces),
        hidden_(whole(config.hidden, kernels::kDepthMultiple)),
        intermediate_(whole(config.intermediate, kernels::kPanelColumns)),
        vocabulary_(whole(config.vocabulary, kernels::kPanelColumns)) {}

  WeightPlan plan() {
    Weights& weights = plan_.weights;
    weights.format = format_.layers;
    weights.numbers = formats_.numbers(format_.layers);
    weights.formats = &formats_;
    weights.padded_hidden = static_cast<int32_t>(hidden_.padded());
    weights.padded_head_dim = static_cast<int32_t>(heads(1).padded());
    weights.padded_intermediate = static_cast<int32_t>(intermediate_.padded());
    weights.padded_vocabulary = static_cast<int32_t>(vocabulary_.padded());

    start_piece();
    weights.embedding = token_matrix("model.embed_tokens.weight");
    weights.layers.resize(static_cast<size_t>(config_.layers));
    for (int32_t i = 0; i < config_.layers; ++i) {
      start_piece();
      plan_layer(fmt::format("model.layers.{}.", i), weights.layers[static_cast<size_t>(i)]);
    }
    start_piece();
    weights.final_norm = vector("model.norm.weight", hidden_);
    weights.lm_head = config_.tied_embeddings ? weights.embedding : token_matrix("lm_head.weight");
    return std::move(plan_);
  }

 private:
  // Every head padded.
  [[nodiscard]] PaddedDim heads(int64_t count) const {
    return {count * config_.head_dim, config_.head_dim,
            round_up(config_.head_dim, kernels::kHeadDimMultiple)};
  }

  void plan_layer(const std::string& prefix, LayerWeights& layer) {
    const PaddedDim query = heads(config_.heads);
    const PaddedDim key_value = heads(config_.kv_heads);
    const std::pair<const char*, PaddedDim> parts[] = {
        {"q_proj", query}, {"k_proj", key_value}, {"v_proj", key_value}};
    const int64_t qkv_columns = query.padded() + 2 * key_value.padded();

    layer.attention_norm = vector(prefix + "input_layernorm.weight", hidden_);
    auto [qkv, qkv_data] = take_matrix(format_.of(prefix + "self_attn.q_proj.weight", false),
                                       qkv_columns, hidden_.padded());
    layer.qkv = qkv;
    auto* bias = config_.qkv_bias ? static_cast<float*>(take(qkv_columns * 4)) : nullptr;
    layer.qkv_bias = bias;
    int64_t offset = 0;
    for (const auto& [name, rows] : parts) {
      const std::string tensor = fmt::format("{}self_attn.{}.", prefix, name);
      add_matrix(tensor + "weight", rows, hidden_, {qkv, qkv_data, offset});
      if (config_.qkv_bias) {
        add_vector(tensor + "bias", rows, bias == nullptr ? nullptr : bias + offset);
      }
      offset += rows.padded();
    }
    if (config_.qk_norm) {
      layer.q_norm = vector(prefix + "self_attn.q_norm.weight", heads(1));
      layer.k_norm = vector(prefix + "self_attn.k_norm.weight", heads(1));
    }
    layer.output = matrix(prefix + "self_attn.o_proj.weight", hidden_, query);

    layer.mlp_norm = vector(prefix + "post_attention_layernorm.weight", hidden_);
    auto [gate_up, gate_up_data] = take_matrix(format_.of(prefix + "mlp.gate_proj.weight", false),
                                               2 * intermediate_.padded(), hidden_.padded());
    layer.gate_up = gate_up;
    add_matrix(prefix + "mlp.gate_proj.weight", intermediate_, hidden_,
               {gate_up, gate_up_data, 0, device::WeightPart::kGate});
    add_matrix(prefix + "mlp.up_proj.weight", intermediate_, hidden_,
               {gate_up, gate_up_data, 0, device::WeightPart::kUp});
    layer.down = matrix(prefix + "mlp.down_proj.weight", hidden_, intermediate_);
  }

  struct Target {
    WeightMatrix matrix;
    void* data;
    int64_t n_offset;
    device::WeightPart part = device::WeightPart::kRows;
  };

  void start_piece() { plan_.pieces.emplace_back(); }

  void* take(int64_t bytes) {
    const size_t piece = plan_.pieces.size() - 1;
    int64_t& used = plan_.pieces[piece].bytes;
    const int64_t offset = std::exchange(used, used + round_up(bytes, kAlignment));
    if (pieces_.empty()) {
      return nullptr;
    }
    CHECK(piece < pieces_.size(), "piece {} of {}", piece, pieces_.size());
    return pieces_[piece] + offset;
  }

  std::pair<WeightMatrix, void*> take_matrix(const device::WeightFormat& format, int64_t n,
                                             int64_t k) {
    WeightMatrix packed = formats_.matrix(format, n, k);
    plan_.pieces.back().matrices.push_back({plan_.pieces.back().bytes, packed});
    void* data = take(packed.stored_bytes);
    packed.data = data;
    return {packed, data};
  }

  void add_matrix(std::string tensor, PaddedDim n, PaddedDim k, const Target& target) {
    plan_.jobs.push_back({.tensor = std::move(tensor),
                          .shape = {n.logical, k.logical},
                          .n = n,
                          .k = k,
                          .target = target.matrix,
                          .part = target.part,
                          .n_offset = target.n_offset,
                          .target_data = target.data});
  }

  void add_vector(std::string tensor, PaddedDim n, float* target) {
    plan_.jobs.push_back({.tensor = std::move(tensor),
                          .shape = {n.logical},
                          .n = n,
                          .k = {},
                          .target = {},
                          .n_offset = 0,
                          .target_data = target});
  }

  WeightMatrix matrix(std::string tensor, PaddedDim n, PaddedDim k) {
    auto [packed, data] = take_matrix(format_.of(tensor, false), n.padded(), k.padded());
    add_matrix(std::move(tensor), n, k, {packed, data, 0});
    return packed;
  }

  // Embedding or LM head: few of the bytes, and what is lost in them is not made up for anywhere,
  // so they are rounded only where a file has them so.
  WeightMatrix token_matrix(std::string tensor) {
    auto [packed, data] =
        take_matrix(format_.of(tensor, true), vocabulary_.padded(), hidden_.padded());
    add_matrix(std::move(tensor), vocabulary_, hidden_, {packed, data, 0});
    return packed;
  }

  const float* vector(std::string tensor, PaddedDim n) {
    auto* data = static_cast<float*>(take(n.padded() * 4));
    add_vector(std::move(tensor), n, data);
    return data;
  }

  const ModelConfig& config_;
  const WeightFormats& format_;
  const device::Formats& formats_;
  std::span<std::byte* const> pieces_;
  PaddedDim hidden_;
  PaddedDim intermediate_;
  PaddedDim vocabulary_;
  WeightPlan plan_;
};

}  // namespace

WeightPlan plan_weights(const ModelConfig& config, const WeightFormats& format,
                        const device::Formats& formats, std::span<std::byte* const> pieces) {
  return Planner(config, format, formats, pieces).plan();
}

int64_t weight_bytes(const ModelConfig& config, const WeightFormats& format,
                     const device::Formats& formats) {
  int64_t sum = 0;
  for (const WeightPiece& piece : plan_weights(config, format, formats, {}).pieces) {
    sum += piece.bytes;
  }
  return sum;
}

}  // namespace tandem::model
