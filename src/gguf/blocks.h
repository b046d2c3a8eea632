// The element types of GGUF tensors. A tensor of a quantised type is a run of blocks: `elements`
// consecutive values of a row in `bytes` bytes, scales included. Plain data; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::gguf {

// The values are those of the file format.
enum class BlockType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

struct BlockShape {
  int64_t elements = 1;
  int64_t bytes = 0;
};

// Of the types above; nullopt for a number that is none of them.
std::optional<BlockType> block_type(uint32_t number);
BlockShape block_shape(BlockType type);

// "Q4_K"; "type 99" for a number that no known type has.
std::string type_name(uint32_t number);
inline std::string type_name(BlockType type) { return type_name(static_cast<uint32_t>(type)); }
// The types above, for errors and help.
std::string_view supported_types();

}  // namespace tandem::gguf
