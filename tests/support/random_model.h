// Test help: small models with random weights, made in memory, and a plain forward pass over them
// in double precision. Written from the model's definition alone, one token at a time and without
// any cache layout, padding or packing, so that it shares no mistake with what it checks.
#pragma once

#include <cstdint>
#include <vector>

#include "base/element_type.h"
#include "base/quantization.h"
#include "device/device.h"
#include "model/config.h"
#include "model/weights.h"

namespace tandem::reference {

// Row-major [rows, columns].
struct Matrix {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<float> values;
};

struct Layer {
  std::vector<float> attention_norm;
  Matrix q, k, v;  // [heads * head_dim, hidden], [kv_heads * head_dim, hidden] twice
  std::vector<float> q_bias, k_bias, v_bias;  // empty without bias
  std::vector<float> q_norm, k_norm;          // [head_dim]; empty without the norm of heads
  Matrix output;                              // [hidden, heads * head_dim]
  std::vector<float> mlp_norm;
  Matrix gate, up;  // [intermediate, hidden]
  Matrix down;      // [hidden, intermediate]
};

struct Model {
  model::ModelConfig config;
  Matrix embedding;  // [vocabulary, hidden]
  std::vector<Layer> layers;
  std::vector<float> final_norm;
  Matrix lm_head;  // empty when tied
};

// Weights of `type` precision, scaled so that activations stay of order one.
// A tiny model of three layers.
model::ModelConfig small_config();

Model make_model(const model::ModelConfig& config, ElementType type, uint32_t seed);

// The model in device memory as load_weights would leave it.
model::Weights pack(const Model& model, ElementType type, device::Device& device,
                    Quantization quantization = Quantization::kNone);

// The model whose layers have the values that such weights stand for; kNone: the same.
Model dequantized(const Model& model, Quantization quantization);

// Logits after each token of `tokens`: [tokens, vocabulary].
std::vector<double> forward(const Model& model, const std::vector<int32_t>& tokens);

// Largest relative L2 error of the rows of two [*, columns] arrays; infinite on NaN.
double worst_row_error(const std::vector<float>& got, const std::vector<double>& expected,
                       int64_t columns);

}  // namespace tandem::reference
