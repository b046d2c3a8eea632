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
  // What holds `tensors`: "gguf", "gptq", "awq" or "compressed-tensors"; empty without them.
  std::string origin;
  // Of the layers' matrices; embedding and head have its type as it is. Without `tensors` this is
  // all there is.
  device::WeightFormat layers;
  // Of the matrices that the files hold, by the plan's name of the tensor ("lm_head.weight").
  // Tensors that are one matrix in memory (q, k and v; gate and up) have one format.
  std::map<std::string, Quantization, std::less<>> tensors;
  // Of the products with all matrices that are quantised.
  Activations activations = Activations::kPlain;

  WeightFormats() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): all matrices of layers in one format
  WeightFormats(const device::WeightFormat& of_layers) : layers(of_layers) {}

  // Of a matrix of a layer, or, with `token_matrix`, of the embedding or the head.
  [[nodiscard]] device::WeightFormat of(std::string_view tensor, bool token_matrix) const;
  [[nodiscard]] bool from_file() const { return !tensors.empty(); }
  [[nodiscard]] bool any_quantized() const;
  // "bfloat16", "int4"; of files: "gguf int4+int8", what layers have most of first. Rounded
  // activations are named behind it: "int4, int8 activations".
  [[nodiscard]] std::string name() const;
  [[nodiscard]] bool supported(const device::Formats& formats) const;
  friend bool operator==(const WeightFormats&, const WeightFormats&) = default;
};

// How a GGUF type is held: Q8_0 and Q5_0 as int8, Q4_0 as int4-symmetric, Q4_1 and Q4_K as int4;
// Q5_1, Q5_K and Q6_K are rounded to int8. kNone: types that are not quantised.
Quantization stored_quantization(gguf::BlockType type);

// True: padding of the heads cuts the tensor's groups of 32.
bool cuts_groups(std::string_view tensor, int32_t head_dim);

// A matrix of the files: how it is held if it stays as it is, and its elements.
struct StoredMatrix {
  Quantization quantization = Quantization::kNone;
  int64_t elements = 0;
};

// The formats in which matrices, by the plan's name, are held without becoming bf16; nullopt if
// none is quantised. Computed with numbers of bf16.
std::optional<WeightFormats> stored_weight_formats(
    std::string_view origin, const std::map<std::string, StoredMatrix, std::less<>>& matrices,
    const ModelConfig& config);

// The same of the matrices of a GGUF file.
std::optional<WeightFormats> gguf_weight_formats(const gguf::Files& files,
                                                 const ModelConfig& config);

// As what a source delivers a quantised tensor.
struct Delivery {
  ElementType type = ElementType::kF32;
  Quantization quantization = Quantization::kNone;  // kNone: numbers of `type`
};

// So that no value is rounded twice: groups if `formats` say so by name, at once of the kind that
// they will be rounded to; fp32 if packing rounds them; else numbers of the type that products
// read. `own`: of the tensor's groups, kNone if it has none.
Delivery delivery_of(Quantization own, std::string_view tensor, int32_t head_dim,
                     const WeightFormats& formats);

}  // namespace tandem::model
