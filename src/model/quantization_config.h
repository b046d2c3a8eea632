// What a config.json says about weights that are quantised already: GPTQ, AWQ and
// compressed-tensors. Knows no tensors (packed_layer.h does). Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem::model {

class JsonFields;

enum class QuantizationMethod : uint8_t { kGptq, kAwq, kCompressedTensors };

// "gptq", "awq", "compressed-tensors": as config.json and Tandem's own names of formats have them.
std::string_view method_name(QuantizationMethod method);

// How the integers of a layer are chosen.
struct QuantizationScheme {
  int32_t bits = 4;  // 4 or 8
  bool symmetric = true;
  int64_t group_size = -1;  // columns that share a scale, a multiple of 32; -1: a whole row
};

struct QuantizationConfig {
  QuantizationMethod method = QuantizationMethod::kGptq;
  bool zeros_minus_one = false;             // GPTQ's format "gptq" stores zero points minus one
  std::vector<QuantizationScheme> schemes;  // a layer has one of them; never empty
};

// In words: "gptq, 4 bits in groups of 128, symmetric"; several schemes with "or" between them.
std::string quantization_text(const QuantizationConfig& config);

// The fields `quantization_config` of a config.json, or `compression_config`, as older files name
// it; nullopt without either, or if they say that the weights are not compressed. What Tandem does
// not compute (activations and KV in fewer bits) is a line in `warnings` where weights alone can be
// served, else an error that names field, value and cure.
Result<std::optional<QuantizationConfig>> parse_quantization_config(
    const JsonFields& fields, std::vector<std::string>& warnings);

}  // namespace tandem::model
