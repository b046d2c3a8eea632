// The header of a safetensors file: which tensors lie where. Bytes in, plain data out; trusts
// nothing in them. Any thread.
//
// Layout of a file: 8 bytes header length (little endian), the header as JSON, the data. A header
// names each tensor with dtype, shape and [begin, end) counted from the end of the header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/element_type.h"
#include "base/result.h"

namespace tandem::model {

struct TensorEntry {
  std::string name;
  std::string dtype;                // as written: "BF16"
  std::optional<ElementType> type;  // of the dtypes that weights may have
  std::vector<int64_t> shape;       // slowest first
  int64_t begin = 0;                // in the file
  int64_t end = 0;
  [[nodiscard]] int64_t bytes() const { return end - begin; }
};

std::string format_shape(std::span<const int64_t> shape);  // "[512, 64]"

// Tensors by offset. `file` is the whole file; `name` stands in errors. Checks: header length and
// JSON, every dtype, shape and range, that a tensor's bytes are what its shape needs, that all lie
// in the file and none overlap, no name twice. Gaps between tensors are allowed.
Result<std::vector<TensorEntry>> parse_safetensors_header(std::span<const std::byte> file,
                                                          std::string_view name);

}  // namespace tandem::model
