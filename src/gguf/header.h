// The header of a GGUF file: its metadata, and which tensors lie where. Bytes in, plain data out;
// trusts nothing in them. Versions 2 and 3, little endian. Any thread.
//
// Layout of a file: magic, version, counts of tensors and of key-value pairs, the pairs, the
// tensors' names, shapes, types and offsets, padding, the data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/blocks.h"
#include "gguf/metadata.h"

namespace tandem::gguf {

struct Tensor {
  std::string name;  // "blk.0.attn_q.weight"
  BlockType type = BlockType::kF32;
  std::vector<int64_t> shape;  // slowest first, as everywhere in Tandem; a file has it reversed
  int64_t begin = 0;           // in the file
  int64_t end = 0;
  [[nodiscard]] int64_t bytes() const { return end - begin; }
};

struct Header {
  Metadata metadata;
  std::vector<Tensor> tensors;  // by offset
};

// `file` is the whole file, which must outlive the metadata; `name` stands in errors. Checks: magic
// and version, that every count and length lies in the file, no key or tensor twice, types that are
// supported, whole blocks in every row, sizes without overflow, offsets aligned and in the file, no
// tensors that overlap.
Result<Header> parse_header(std::span<const std::byte> file, std::string_view name);

}  // namespace tandem::gguf
