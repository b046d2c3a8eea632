#include "model/weight_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "model/gguf_config.h"

namespace tandem::model {
namespace {

using gguf::BlockType;

// For both: a matrix has a single format. int4-symmetric fits every kind; int4 is rounded to int8.
Quantization common(Quantization a, Quantization b) {
  if (a == b) {
    return a;
  }
  if (a == Quantization::kNone || b == Quantization::kNone) {
    return Quantization::kNone;
  }
  return a == Quantization::kInt8 || b == Quantization::kInt8 ? Quantization::kInt8
                                                              : Quantization::kInt4;
}

// The tensors that are one matrix in memory get one format.
void unite(std::map<std::string, Quantization, std::less<>>& tensors, const std::string& prefix,
           std::span<const char* const> names) {
  const bool none = std::none_of(names.begin(), names.end(),
                                 [&](const char* name) { return tensors.contains(prefix + name); });
  if (none) {
    return;  // loading says what is missing
  }
  std::optional<Quantization> united;
  for (const char* name : names) {
    const auto it = tensors.find(prefix + name);
    const Quantization own = it == tensors.end() ? Quantization::kNone : it->second;
    united = united ? common(*united, own) : own;
  }
  for (const char* name : names) {
    tensors[prefix + name] = *united;
  }
}

// Groups that padding cuts are rounded anew: to 4 bits that loses 4 to 6 % (root mean square), to
// int8 0.5 %.
void widen_cut(std::map<std::string, Quantization, std::less<>>& tensors, const std::string& name,
               int32_t head_dim) {
  const auto it = tensors.find(name);
  if (it != tensors.end() && it->second != Quantization::kNone && cuts_groups(name, head_dim)) {
    it->second = Quantization::kInt8;
  }
}

// The kind of which layers have the most elements.
Quantization main_quantization(const std::map<std::string, Quantization, std::less<>>& tensors,
                               const std::map<std::string, StoredMatrix, std::less<>>& matrices) {
  std::array<int64_t, kQuantizations.size()> sums{};
  for (const auto& [name, quantization] : tensors) {
    const auto it = matrices.find(name);
    if (name.starts_with("model.layers.") && it != matrices.end()) {
      sums[static_cast<size_t>(quantization)] += it->second.elements;
    }
  }
  return static_cast<Quantization>(std::max_element(sums.begin(), sums.end()) - sums.begin());
}

}  // namespace

device::WeightFormat WeightFormats::of(std::string_view tensor, bool token_matrix) const {
  if (const auto it = tensors.find(tensor); it != tensors.end()) {
    return device::weight_format(layers.type, it->second, activations);
  }
  if (token_matrix || from_file()) {
    return device::weight_format(layers.type, Quantization::kNone);
  }
  device::WeightFormat format = layers;
  format.activations = activations;
  return format;
}

bool WeightFormats::any_quantized() const {
  return layers.quantization != Quantization::kNone ||
         std::any_of(tensors.begin(), tensors.end(),
                     [](const auto& held) { return held.second != Quantization::kNone; });
}

std::string WeightFormats::name() const {
  const std::string_view rounded =
      activations == Activations::kInt8 ? ", int8 activations" : std::string_view();
  if (!from_file()) {
    return fmt::format("{}{}", device::format_name(layers), rounded);
  }
  std::string text = fmt::format("{} {}", origin, device::format_name(layers));
  for (const Quantization other : kQuantizations) {
    const bool used = std::any_of(tensors.begin(), tensors.end(),
                                  [&](const auto& held) { return held.second == other; });
    if (used && other != layers.quantization) {
      text += fmt::format("+{}", device::format_name(device::weight_format(layers.type, other)));
    }
  }
  text += rounded;
  return text;
}

bool WeightFormats::supported(const device::Formats& formats) const {
  device::WeightFormat of_layers = layers;
  if (of_layers.quantization != Quantization::kNone) {
    of_layers.activations = activations;
  }
  return formats.supports(of_layers) &&
         std::all_of(tensors.begin(), tensors.end(), [&](const auto& held) {
           return formats.supports(device::weight_format(layers.type, held.second, activations));
         });
}

Quantization stored_quantization(BlockType type) {
  switch (type) {
    case BlockType::kF32:
    case BlockType::kF16:
    case BlockType::kBF16:
      return Quantization::kNone;
    case BlockType::kQ4_0:
      return Quantization::kInt4Symmetric;
    case BlockType::kQ4_1:
    case BlockType::kQ4_K:
      return Quantization::kInt4;
    case BlockType::kQ5_0:
    case BlockType::kQ5_1:
    case BlockType::kQ8_0:
    case BlockType::kQ5_K:
    case BlockType::kQ6_K:
      return Quantization::kInt8;
  }
  return Quantization::kNone;
}

bool cuts_groups(std::string_view tensor, int32_t head_dim) {
  return tensor.ends_with(".o_proj.weight") && head_dim % kQuantizedGroup != 0;
}

std::optional<WeightFormats> stored_weight_formats(
    std::string_view origin, const std::map<std::string, StoredMatrix, std::less<>>& matrices,
    const ModelConfig& config) {
  std::map<std::string, Quantization, std::less<>> tensors;
  bool quantised = false;
  for (const auto& [name, matrix] : matrices) {
    tensors[name] = matrix.quantization;
    quantised = quantised || matrix.quantization != Quantization::kNone;
  }
  if (!quantised) {
    return std::nullopt;
  }
  constexpr std::array kQkv = {"self_attn.q_proj.weight", "self_attn.k_proj.weight",
                               "self_attn.v_proj.weight"};
  constexpr std::array kGateUp = {"mlp.gate_proj.weight", "mlp.up_proj.weight"};
  for (int32_t layer = 0; layer < config.layers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    unite(tensors, prefix, kQkv);
    unite(tensors, prefix, kGateUp);
    widen_cut(tensors, prefix + "self_attn.o_proj.weight", config.head_dim);
  }
  WeightFormats formats(
      device::weight_format(ElementType::kBF16, main_quantization(tensors, matrices)));
  formats.origin = origin;
  formats.tensors = std::move(tensors);
  return formats;
}

std::optional<WeightFormats> gguf_weight_formats(const gguf::Files& files,
                                                 const ModelConfig& config) {
  std::map<std::string, StoredMatrix, std::less<>> matrices;
  for (const gguf::Files::Part& part : files.parts()) {
    for (const gguf::Tensor& tensor : part.header.tensors) {
      const std::optional<std::string> name = plan_name_of_gguf(tensor.name);
      if (name && tensor.shape.size() == 2) {
        matrices[*name] = {stored_quantization(tensor.type), tensor.shape[0] * tensor.shape[1]};
      }
    }
  }
  return stored_weight_formats("gguf", matrices, config);
}

Delivery delivery_of(Quantization own, std::string_view tensor, int32_t head_dim,
                     const WeightFormats& formats) {
  const auto it = formats.tensors.find(tensor);
  const bool grouped = it != formats.tensors.end() && it->second != Quantization::kNone &&
                       own != Quantization::kNone;
  if (grouped && !cuts_groups(tensor, head_dim)) {
    const bool rounded = own == Quantization::kInt4 && it->second == Quantization::kInt8;
    return {ElementType::kBF16, rounded ? it->second : own};
  }
  const bool rounded_later =
      grouped || (formats.layers.quantization != Quantization::kNone && !formats.from_file());
  return {rounded_later ? ElementType::kF32 : formats.layers.type};
}

}  // namespace tandem::model
