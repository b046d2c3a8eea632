// The header of a safetensors file: which tensors lie where. Bytes in, plain data out; trusts
// nothing in them. Any thread.
//
// Layout of a file: 8 bytes header length (little endian), the header as JSON, the data. A header
// names each tensor with dtype, shape and [begin, end) counted from the end of the header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/weight_source.h"

namespace tandem::model {

std::string format_shape(std::span<const int64_t> shape);  // "[512, 64]"

// Tensors by offset. `file` is the whole file; `name` stands in errors. Checks: header length and
// JSON, every dtype, shape and range, that a tensor's bytes are what its shape needs, that all lie
// in the file and none overlap, no name twice. Gaps between tensors are allowed.
Result<std::vector<TensorEntry>> parse_safetensors_header(std::span<const std::byte> file,
                                                          std::string_view name);

}  // namespace tandem::model
