// How the matrices of a model are stored: most in one format, and some apart where a file of
// quantised weights holds them in other types. Plain data; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/quantization.h"
#include "device/formats.h"
#include "gguf/blocks.h"
#include "gguf/files.h"
#include "model/config.h"

namespace tandem::model {

struct WeightFormats {
  // Of the layers' matrices; embedding and head have its type as it is. Without `tensors` this is
  // all there is.
  device::WeightFormat layers;
  // Of the matrices that a file holds, by the plan's name of the tensor ("lm_head.weight"). Tensors
  // that are one matrix in memory (q, k and v; gate and up) have one format.
  std::map<std::string, Quantization, std::less<>> tensors;

  WeightFormats() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): all matrices of layers in one format
  WeightFormats(const device::WeightFormat& of_layers) : layers(of_layers) {}

  // Of a matrix of a layer, or, with `token_matrix`, of the embedding or the head.
  [[nodiscard]] device::WeightFormat of(std::string_view tensor, bool token_matrix) const;
  [[nodiscard]] bool from_file() const { return !tensors.empty(); }
  // "bfloat16", "int4"; of a file's: "gguf int4+int8", what layers have most of first.
  [[nodiscard]] std::string name() const;
  [[nodiscard]] bool supported(const device::Formats& formats) const;
  friend bool operator==(const WeightFormats&, const WeightFormats&) = default;
};

// How a GGUF type is held: Q8_0 and Q5_0 as int8, Q4_0 as int4-symmetric, Q4_1 and Q4_K as int4;
// Q5_1, Q5_K and Q6_K are rounded to int8. kNone: types that are not quantised.
Quantization stored_quantization(gguf::BlockType type);

// True: padding of the heads cuts the tensor's groups of 32.
bool cuts_groups(std::string_view tensor, int32_t head_dim);

// The formats in which the quantised tensors of a file are held without becoming bf16; nullopt if
// it has none. Computed with numbers of bf16.
std::optional<WeightFormats> gguf_weight_formats(const gguf::Files& files,
                                                 const ModelConfig& config);

}  // namespace tandem::model
