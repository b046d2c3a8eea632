// The quantised layers of a checkpoint (GPTQ, AWQ, compressed-tensors): which tensors make a layer
// and whether their shapes agree. packed_values.h reads their values. Any thread; no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "base/quantization.h"
#include "base/result.h"
#include "model/checkpoint.h"
#include "model/quantization_config.h"

namespace tandem::model {

struct PackedLayer {
  enum class Layout : uint8_t {
    kColumnWords,  // GPTQ: words of consecutive columns, [columns / per word, rows]
    kRowWords,     // AWQ: words of rows in an order of its own, [columns, rows / per word]
    kPacked,       // pack-quantized: words of consecutive columns, [rows, columns / per word]
    kBytes,        // int-quantized: int8 [rows, columns]
  };
  // A tensor of the layer and where its data lie.
  struct Part {
    const TensorEntry* entry = nullptr;  // null: the layer has no such tensor
    int32_t file = 0;
    const std::byte* data = nullptr;
  };

  Layout layout = Layout::kColumnWords;
  QuantizationScheme scheme;
  bool zeros_minus_one = false;
  int64_t rows = 0;     // results
  int64_t columns = 0;  // depth
  int64_t groups = 0;   // scales of a row; 1, or columns / groups is a multiple of 32
  Part values;
  Part scales;  // [groups, rows] of kColumnWords and kRowWords, else [rows, groups]
  Part zeros;   // as scales, int8 of kBytes, else rows packed in words as the layout packs them
  Part order;   // the group of each column
  // The columns of a group are not side by side: the file orders them by their activations.
  bool reordered = false;

  // Of integers in one word.
  [[nodiscard]] int64_t per_word() const { return 32 / scheme.bits; }
  // By `order`; the data of `order` must be readable.
  [[nodiscard]] int64_t group_of(int64_t column) const;
  [[nodiscard]] bool has_unset_group(int64_t column) const;
  [[nodiscard]] int32_t order_of(int64_t column) const;  // as the file has it
  // How the layer is held without becoming numbers. kNone: groups of 32 do not divide a row.
  [[nodiscard]] Quantization kind() const {
    return columns % kQuantizedGroup != 0  ? Quantization::kNone
           : scheme.bits == 8 || reordered ? Quantization::kInt8
           : scheme.symmetric              ? Quantization::kInt4Symmetric
                                           : Quantization::kInt4;
  }
};

// By the name of the layer ("model.layers.0.mlp.up_proj"). Reads shapes, the few bytes of
// compressed-tensors' weight_shape, the order of columns, and zero points if a symmetric scheme and
// another one fit.
// Errors name the file and the tensor: a tensor that is missing, of another type, of a shape that
// fits no scheme of `config`, a layer that is there twice, and a checkpoint without any.
// `checkpoint` must outlive the layers.
Result<std::map<std::string, PackedLayer>> find_packed_layers(const Checkpoint& checkpoint,
                                                              const QuantizationConfig& config);

// Reads zero points and the order of columns. Errors: a symmetric layer's zero points are not the
// middle, or the group of a column does not exist or is given for some columns only.
Status check_packed_layer(const Checkpoint& checkpoint, const PackedLayer& layer);

}  // namespace tandem::model
