#include "support/random_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/check.h"
#include "kernels/quantize.h"

namespace tandem::reference {
namespace {

using device::WeightMatrix;
using kernels::PaddedDim;
using kernels::round_up;

class Source {
 public:
  Source(ElementType type, uint32_t seed) : type_(type), random_(seed) {}
  std::vector<float> values(int64_t count, float scale, float offset) {
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    std::vector<float> all(static_cast<size_t>(count));
    for (float& value : all) {
      value = offset + scale * uniform(random_);
      if (type_ == ElementType::kBF16) {
        value = bf16_to_f32(f32_to_bf16(value));
      }
    }
    return all;
  }
  Matrix matrix(int64_t rows, int64_t columns) {
    const float scale = std::sqrt(3.0F / static_cast<float>(columns));  // outputs of variance one
    return {rows, columns, values(rows * columns, scale, 0.0F)};
  }

 private:
  ElementType type_;
  std::mt19937 random_;
};

// Puts weights into one piece of device memory, one after another.
class Packer {
 public:
  Packer(const model::ModelConfig& config, const device::WeightFormat& format,
         device::Device& device)
      : config_(config), format_(format), device_(device), stream_(device.create_stream()) {}

  // A dim padded at its end, or head by head.
  static PaddedDim plain(int64_t logical) {
    return {logical, logical, round_up(logical, kernels::kPanelColumns)};
  }
  [[nodiscard]] PaddedDim by_head(int64_t heads) const {
    return {heads * config_.head_dim, config_.head_dim, round_up(config_.head_dim, 32)};
  }

  WeightMatrix matrix(int64_t n, int64_t k) { return matrix(format_, n, k); }
  // Of the embedding or the head.
  WeightMatrix token_matrix(int64_t n, int64_t k) { return matrix({.type = format_.type}, n, k); }
  void pack(const Matrix& source, const PaddedDim& n, const PaddedDim& k,
            const WeightMatrix& target, int64_t n_offset,
            device::WeightPart part = device::WeightPart::kRows) {
    CHECK(source.rows == n.logical && source.columns == k.logical, "{} x {}", source.rows,
          source.columns);
    device_.launch(stream_, device::UploadOp{.source = source.values.data(),
                                             .source_type = ElementType::kF32,
                                             .n = n,
                                             .k = k,
                                             .target = target,
                                             .target_data = const_cast<void*>(target.data),
                                             .part = part,
                                             .n_offset = n_offset});
    device_.synchronize(device_.record(stream_));
  }
  const float* floats(const std::vector<float>& values) {
    auto* place = static_cast<float*>(take(static_cast<int64_t>(values.size() * sizeof(float))));
    std::copy(values.begin(), values.end(), place);
    return place;
  }
  std::vector<std::unique_ptr<device::Memory>> memory;

 private:
  WeightMatrix matrix(const device::WeightFormat& format, int64_t n, int64_t k) {
    WeightMatrix packed = device_.formats().matrix(format, n, k);
    packed.data = take(packed.stored_bytes);
    return packed;
  }
  void* take(int64_t bytes) {
    auto piece = device_.allocate(device::MemoryKind::kDevice, bytes);
    CHECK(piece.ok(), "{}", piece.error().message);
    memory.push_back(std::move(piece).value());
    return memory.back()->data();
  }

  const model::ModelConfig& config_;
  const device::WeightFormat format_;
  device::Device& device_;
  const device::StreamId stream_;
};

std::vector<float> padded_bias(const Layer& layer, const model::ModelConfig& config,
                               int64_t padded_head_dim) {
  std::vector<float> all;
  for (const std::vector<float>* part : {&layer.q_bias, &layer.k_bias, &layer.v_bias}) {
    for (size_t i = 0; i < part->size(); ++i) {
      all.push_back((*part)[i]);
      if ((i + 1) % static_cast<size_t>(config.head_dim) == 0) {
        all.insert(all.end(), static_cast<size_t>(padded_head_dim - config.head_dim), 0.0F);
      }
    }
  }
  return all;
}

model::LayerWeights pack_layer(const Layer& layer, const model::ModelConfig& config,
                               Packer& packer) {
  const PaddedDim hidden = Packer::plain(config.hidden);
  const PaddedDim intermediate = Packer::plain(config.intermediate);
  const PaddedDim q = packer.by_head(config.heads);
  const PaddedDim kv = packer.by_head(config.kv_heads);
  model::LayerWeights out;
  out.attention_norm = packer.floats(layer.attention_norm);
  out.mlp_norm = packer.floats(layer.mlp_norm);
  out.qkv = packer.matrix(q.padded() + 2 * kv.padded(), hidden.padded());
  packer.pack(layer.q, q, hidden, out.qkv, 0);
  packer.pack(layer.k, kv, hidden, out.qkv, q.padded());
  packer.pack(layer.v, kv, hidden, out.qkv, q.padded() + kv.padded());
  if (config.qkv_bias) {
    out.qkv_bias = packer.floats(padded_bias(layer, config, q.padded_group));
  }
  if (config.qk_norm) {
    out.q_norm = packer.floats(layer.q_norm);
    out.k_norm = packer.floats(layer.k_norm);
  }
  out.output = packer.matrix(hidden.padded(), q.padded());
  packer.pack(layer.output, hidden, q, out.output, 0);
  out.gate_up = packer.matrix(2 * intermediate.padded(), hidden.padded());
  packer.pack(layer.gate, intermediate, hidden, out.gate_up, 0, device::WeightPart::kGate);
  packer.pack(layer.up, intermediate, hidden, out.gate_up, 0, device::WeightPart::kUp);
  out.down = packer.matrix(hidden.padded(), intermediate.padded());
  packer.pack(layer.down, hidden, intermediate, out.down, 0);
  return out;
}

using Vector = std::vector<double>;

Vector multiply(const Matrix& w, const Vector& x, const std::vector<float>& bias) {
  Vector y(static_cast<size_t>(w.rows));
  for (int64_t row = 0; row < w.rows; ++row) {
    double sum = bias.empty() ? 0.0 : static_cast<double>(bias[static_cast<size_t>(row)]);
    for (int64_t column = 0; column < w.columns; ++column) {
      sum += static_cast<double>(w.values[static_cast<size_t>(row * w.columns + column)]) *
             x[static_cast<size_t>(column)];
    }
    y[static_cast<size_t>(row)] = sum;
  }
  return y;
}

Vector normalise(const Vector& x, const std::vector<float>& weight, double epsilon) {
  double squares = 0;
  for (const double value : x) {
    squares += value * value;
  }
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + epsilon);
  Vector y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = x[i] * scale * static_cast<double>(weight[i]);
  }
  return y;
}

void rotate(Vector& x, const model::ModelConfig& config, size_t position) {
  const Vector frequencies = model::rope_inverse_frequencies(config, config.max_positions);
  const double factor = model::rope_attention_factor(config);
  const auto head_dim = static_cast<size_t>(config.head_dim);
  for (size_t head = 0; head < x.size(); head += head_dim) {
    for (size_t i = 0; i < head_dim / 2; ++i) {
      const double angle = static_cast<double>(position) * frequencies[i];
      const double a = x[head + i];
      const double b = x[head + i + head_dim / 2];
      x[head + i] = factor * (a * std::cos(angle) - b * std::sin(angle));
      x[head + i + head_dim / 2] = factor * (b * std::cos(angle) + a * std::sin(angle));
    }
  }
}

void normalise_heads(Vector& x, const std::vector<float>& weight, double epsilon) {
  const auto head_dim = static_cast<ptrdiff_t>(weight.size());
  for (auto head = x.begin(); !weight.empty() && head != x.end(); head += head_dim) {
    const Vector normed = normalise(Vector(head, head + head_dim), weight, epsilon);
    std::copy(normed.begin(), normed.end(), head);
  }
}

struct History {
  std::vector<Vector> keys;
  std::vector<Vector> values;
};

// Over the last `window` tokens; 0: over all.
Vector attend(const Vector& q, const History& history, const model::ModelConfig& config,
              size_t window) {
  const auto head_dim = static_cast<size_t>(config.head_dim);
  const auto group = static_cast<size_t>(config.heads / config.kv_heads);
  Vector out(q.size(), 0.0);
  for (size_t head = 0; head < static_cast<size_t>(config.heads); ++head) {
    const size_t kv = head / group * head_dim;
    Vector scores;
    const size_t first =
        window == 0 || window > history.keys.size() ? 0 : history.keys.size() - window;
    for (size_t token = first; token < history.keys.size(); ++token) {
      double score = 0;
      for (size_t i = 0; i < head_dim; ++i) {
        score += q[head * head_dim + i] * history.keys[token][kv + i];
      }
      scores.push_back(score / std::sqrt(static_cast<double>(head_dim)));
    }
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double& score : scores) {
      score = std::exp(score - largest);
      sum += score;
    }
    for (size_t token = 0; token < scores.size(); ++token) {
      for (size_t i = 0; i < head_dim; ++i) {
        out[head * head_dim + i] += scores[token] / sum * history.values[first + token][kv + i];
      }
    }
  }
  return out;
}

void add(Vector& x, const Vector& y) {
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] += y[i];
  }
}

void run_layer(const Layer& layer, const model::ModelConfig& config, int32_t window,
               History& history, Vector& x) {
  const auto epsilon = static_cast<double>(config.rms_epsilon);
  const size_t position = history.keys.size();
  const Vector normed = normalise(x, layer.attention_norm, epsilon);
  Vector q = multiply(layer.q, normed, layer.q_bias);
  Vector k = multiply(layer.k, normed, layer.k_bias);
  normalise_heads(q, layer.q_norm, epsilon);
  normalise_heads(k, layer.k_norm, epsilon);
  rotate(q, config, position);
  rotate(k, config, position);
  history.keys.push_back(k);
  history.values.push_back(multiply(layer.v, normed, layer.v_bias));
  add(x, multiply(layer.output, attend(q, history, config, static_cast<size_t>(window)), {}));
  const Vector mlp_in = normalise(x, layer.mlp_norm, epsilon);
  Vector gate = multiply(layer.gate, mlp_in, {});
  const Vector up = multiply(layer.up, mlp_in, {});
  for (size_t i = 0; i < gate.size(); ++i) {
    gate[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
  }
  add(x, multiply(layer.down, gate, {}));
}

}  // namespace

model::ModelConfig small_config() {
  model::ModelConfig config;
  config.layers = 3;
  config.hidden = 64;
  config.intermediate = 96;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.vocabulary = 75;
  config.max_positions = 512;
  config.rms_epsilon = 1e-5F;
  config.tied_embeddings = true;
  return config;
}

Model make_model(const model::ModelConfig& config, ElementType type, uint32_t seed) {
  Source source(type, seed);
  const int64_t q = int64_t{config.heads} * config.head_dim;
  const int64_t kv = int64_t{config.kv_heads} * config.head_dim;
  const auto bias = [&](int64_t count) {
    return config.qkv_bias ? source.values(count, 0.5F, 0.0F) : std::vector<float>{};
  };
  Model model;
  model.config = config;
  model.embedding = source.matrix(config.vocabulary, config.hidden);
  for (float& value : model.embedding.values) {
    value *= 4.0F;  // exact in either type
  }
  for (int32_t i = 0; i < config.layers; ++i) {
    Layer layer;
    layer.attention_norm = source.values(config.hidden, 0.2F, 1.0F);
    layer.mlp_norm = source.values(config.hidden, 0.2F, 1.0F);
    layer.q = source.matrix(q, config.hidden);
    layer.k = source.matrix(kv, config.hidden);
    layer.v = source.matrix(kv, config.hidden);
    layer.q_bias = bias(q);
    layer.k_bias = bias(kv);
    layer.v_bias = bias(kv);
    if (config.qk_norm) {
      layer.q_norm = source.values(config.head_dim, 0.5F, 1.0F);
      layer.k_norm = source.values(config.head_dim, 0.5F, 1.0F);
    }
    layer.output = source.matrix(config.hidden, q);
    layer.gate = source.matrix(config.intermediate, config.hidden);
    layer.up = source.matrix(config.intermediate, config.hidden);
    layer.down = source.matrix(config.hidden, config.intermediate);
    model.layers.push_back(std::move(layer));
  }
  model.final_norm = source.values(config.hidden, 0.2F, 1.0F);
  if (!config.tied_embeddings) {
    model.lm_head = source.matrix(config.vocabulary, config.hidden);
  }
  return model;
}

namespace {

// Rounds the rows as they are stored: groups begin anew where the depth is padded.
void dequantize(Matrix& matrix, int64_t depth_group, Quantization quantization) {
  for (size_t row = 0; row < matrix.values.size(); row += static_cast<size_t>(depth_group)) {
    for (int64_t begin = 0; begin < depth_group; begin += kQuantizedGroup) {
      const int64_t count = std::min<int64_t>(kQuantizedGroup, depth_group - begin);
      float* at = matrix.values.data() + row + begin;
      float values[kQuantizedGroup] = {};
      std::copy_n(at, count, values);
      const kernels::QuantizedGroup group = kernels::quantize_group(quantization, values);
      for (int64_t i = 0; i < count; ++i) {
        at[i] = group.element(i);
      }
    }
  }
}

}  // namespace

Model dequantized(const Model& model, Quantization quantization) {
  Model rounded = model;
  if (quantization == Quantization::kNone) {
    return rounded;
  }
  for (Layer& layer : rounded.layers) {
    for (Matrix* matrix : {&layer.q, &layer.k, &layer.v, &layer.gate, &layer.up, &layer.down}) {
      dequantize(*matrix, matrix->columns, quantization);
    }
    dequantize(layer.output, model.config.head_dim, quantization);
  }
  return rounded;
}

model::Weights pack(const Model& model, ElementType type, device::Device& device,
                    Quantization quantization) {
  const model::ModelConfig& config = model.config;
  const device::WeightFormat format = device::weight_format(type, quantization);
  Packer packer(config, format, device);
  const PaddedDim hidden = Packer::plain(config.hidden);
  const PaddedDim vocabulary = Packer::plain(config.vocabulary);
  model::Weights weights;
  weights.format = format;
  weights.numbers = device.formats().numbers(weights.format);
  weights.formats = &device.formats();
  weights.padded_hidden = static_cast<int32_t>(hidden.padded());
  weights.padded_head_dim = static_cast<int32_t>(round_up(config.head_dim, 32));
  weights.padded_intermediate = static_cast<int32_t>(round_up(config.intermediate, 32));
  weights.padded_vocabulary = static_cast<int32_t>(vocabulary.padded());
  weights.embedding = packer.token_matrix(vocabulary.padded(), hidden.padded());
  packer.pack(model.embedding, vocabulary, hidden, weights.embedding, 0);
  for (const Layer& layer : model.layers) {
    weights.layers.push_back(pack_layer(layer, config, packer));
  }
  weights.final_norm = packer.floats(model.final_norm);
  weights.lm_head = weights.embedding;
  if (!config.tied_embeddings) {
    weights.lm_head = packer.token_matrix(vocabulary.padded(), hidden.padded());
    packer.pack(model.lm_head, vocabulary, hidden, weights.lm_head, 0);
  }
  weights.memory = std::move(packer.memory);
  return weights;
}

std::vector<double> forward(const Model& model, const std::vector<int32_t>& tokens) {
  const model::ModelConfig& config = model.config;
  std::vector<History> histories(model.layers.size());
  std::vector<double> logits;
  for (const int32_t token : tokens) {
    const float* row = model.embedding.values.data() + int64_t{token} * config.hidden;
    Vector x(row, row + config.hidden);
    for (size_t i = 0; i < model.layers.size(); ++i) {
      run_layer(model.layers[i], config, config.window_of(static_cast<int32_t>(i)), histories[i],
                x);
    }
    const Vector normed = normalise(x, model.final_norm, static_cast<double>(config.rms_epsilon));
    const Vector out =
        multiply(config.tied_embeddings ? model.embedding : model.lm_head, normed, {});
    logits.insert(logits.end(), out.begin(), out.end());
  }
  return logits;
}

double worst_row_error(const std::vector<float>& got, const std::vector<double>& expected,
                       int64_t columns) {
  CHECK(got.size() == expected.size(), "{} values against {}", got.size(), expected.size());
  double worst = 0;
  for (size_t row = 0; row < got.size(); row += static_cast<size_t>(columns)) {
    double error = 0;
    double norm = 0;
    for (size_t i = row; i < row + static_cast<size_t>(columns); ++i) {
      const double difference = static_cast<double>(got[i]) - expected[i];
      error += difference * difference;
      norm += expected[i] * expected[i];
    }
    const double relative = std::sqrt(error / norm);
    if (!(relative <= worst)) {
      worst = std::isnan(relative) ? std::numeric_limits<double>::infinity() : relative;
    }
  }
  return worst;
}

}  // namespace tandem::reference
