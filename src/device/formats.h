// What a back end decides about a model's numbers before it holds any: how weights are stored, the
// types of what lies between products, the workspace of attention. Plain data and an interface of
// pure functions; any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/element_type.h"
#include "base/quantization.h"
#include "kernels/kv_layout.h"

namespace tandem::device {

// How a weight's elements are stored: as numbers of `type`, or quantised. With a group, that many
// elements of a row share a scale.
struct WeightFormat {
  ElementType type = ElementType::kBF16;  // if quantised: of the numbers that products read
  Quantization quantization = Quantization::kNone;
  int32_t group = 0;  // elements; 0: there are no scales
  ElementType scale_type = ElementType::kF32;
  Activations activations = Activations::kPlain;  // if quantised: how products read activations
  friend bool operator==(const WeightFormat&, const WeightFormat&) = default;
};

// The format of `quantization` beside numbers of `type`. Numbers that are not quantised are
// multiplied with plain activations.
constexpr WeightFormat weight_format(ElementType type, Quantization quantization,
                                     Activations activations = Activations::kPlain) {
  return quantization == Quantization::kNone ? WeightFormat{.type = type}
                                             : WeightFormat{.type = type,
                                                            .quantization = quantization,
                                                            .group = kQuantizedGroup,
                                                            .scale_type = ElementType::kF16,
                                                            .activations = activations};
}

// "bfloat16", "int4".
constexpr std::string_view format_name(const WeightFormat& format) {
  return format.quantization == Quantization::kNone ? element_name(format.type)
                                                    : quantization_name(format.quantization);
}

// A weight in device memory, in the back end's own layout.
struct WeightMatrix {
  const void* data = nullptr;  // 64-byte aligned, stored_bytes
  WeightFormat format;
  int64_t n = 0;  // output columns, padded to 32
  int64_t k = 0;  // depth, padded to 32
  int64_t stored_bytes = 0;

  // What so many of its elements take.
  [[nodiscard]] int64_t bytes_of(int64_t elements) const {
    const auto all = static_cast<double>(n * k);
    return n * k == 0 ? 0
                      : static_cast<int64_t>(static_cast<double>(stored_bytes) *
                                             static_cast<double>(elements) / all);
  }

  friend bool operator==(const WeightMatrix&, const WeightMatrix&) = default;
};

// Types of the numbers of a forward pass with weights of one format.
struct NumberTypes {
  ElementType activation = ElementType::kBF16;  // what products read, apart from the weights' type
  // The residual, also in the store of offloaded rows: kF32 or kBF16.
  ElementType residual = ElementType::kF32;
  ElementType attended = ElementType::kBF16;  // attention results, also as rows from the host
};

// The largest attention that a workspace must serve well.
struct AttentionBounds {
  kernels::KvLayout layout;
  int32_t heads = 0;
  int64_t max_context = 0;  // tokens
  int32_t threads = 1;      // of AcceleratorCaps
};

class Formats {
 public:
  virtual ~Formats() = default;
  [[nodiscard]] virtual bool supports(const WeightFormat& format) const = 0;
  // Of a matrix of n x k padded elements, scales and padding of the layout included. The format is
  // supported.
  [[nodiscard]] virtual int64_t weight_bytes(const WeightFormat& format, int64_t n,
                                             int64_t k) const = 0;
  [[nodiscard]] virtual NumberTypes numbers(const WeightFormat& format) const = 0;
  // The type in which attention on the device reads queries: kF32 or kBF16. `attended`: as
  // numbers() says. Rows for the host hold queries in fp32 whatever this type is.
  [[nodiscard]] virtual ElementType query_type(const kernels::KvLayout& /*layout*/,
                                               ElementType /*attended*/) const {
    return ElementType::kF32;
  }
  [[nodiscard]] virtual int64_t attention_workspace_bytes(const AttentionBounds& bounds) const = 0;
  // Elements from row to row of a matrix between ops with `columns` columns: whole cache lines.
  [[nodiscard]] virtual int64_t row_stride(int64_t columns, ElementType type) const = 0;

  [[nodiscard]] WeightMatrix matrix(const WeightFormat& format, int64_t n, int64_t k) const {
    return {.format = format, .n = n, .k = k, .stored_bytes = weight_bytes(format, n, k)};
  }
};

}  // namespace tandem::device
