// For tests of quantised layers: safetensors with integers, and a small layer of each method.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/test_support.h"

namespace tandem::model {

// A tensor of any dtype, by its bytes.
struct RawTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

inline std::string raw_safetensors(std::span<const RawTensor> tensors) {
  std::string header;
  std::string data;
  for (const RawTensor& tensor : tensors) {
    std::string shape;
    for (const int64_t dimension : tensor.shape) {
      shape += (shape.empty() ? "" : ",") + std::to_string(dimension);
    }
    header += (header.empty() ? "{\"" : ",\"") + tensor.name + R"(":{"dtype":")" + tensor.dtype +
              R"(","shape":[)" + shape + R"(],"data_offsets":[)" + std::to_string(data.size()) +
              "," + std::to_string(data.size() + tensor.bytes.size()) + "]}";
    data += tensor.bytes;
  }
  return safetensors_bytes(header + "}", data);
}

// `count` times the bytes of `value`.
template <class Value>
std::string repeated(Value value, int64_t count) {
  std::string bytes;
  for (int64_t i = 0; i < count; ++i) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return bytes;
}

inline constexpr uint16_t kHalfOne = 0x3c00;
inline const std::string kLayer = "model.layers.0.mlp.up_proj";

inline RawTensor words_of(const std::string& name, const std::vector<int64_t>& shape,
                          uint32_t word) {
  return {name, "I32", shape, repeated(word, shape[0] * shape[1])};
}

// A layer [16, 64] of GPTQ, 4 bits in groups of 32, symmetric: every weight is 1 = 9 - 8.
inline std::vector<RawTensor> gptq_layer(const std::string& name = kLayer) {
  std::string order = repeated(int32_t{0}, 32) + repeated(int32_t{1}, 32);
  return {words_of(name + ".qweight", {8, 16}, 0x99999999U),
          words_of(name + ".qzeros", {2, 2}, 0x77777777U),
          {name + ".scales", "F16", {2, 16}, repeated(kHalfOne, 32)},
          {name + ".g_idx", "I32", {64}, order}};
}

// The same matrix of compressed-tensors.
inline std::vector<RawTensor> packed_layer(const std::string& name = kLayer) {
  return {
      words_of(name + ".weight_packed", {16, 8}, 0x99999999U),
      {name + ".weight_scale", "F16", {16, 2}, repeated(kHalfOne, 32)},
      {name + ".weight_shape", "I64", {2}, repeated(int64_t{16}, 1) + repeated(int64_t{64}, 1)}};
}

inline RawTensor& tensor_in(std::vector<RawTensor>& tensors, const std::string& suffix) {
  return *std::find_if(tensors.begin(), tensors.end(),
                       [&](const RawTensor& tensor) { return tensor.name.ends_with(suffix); });
}

}  // namespace tandem::model
