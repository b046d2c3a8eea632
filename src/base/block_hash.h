// The name of a full KV block. How names are made: kv/block_hash.h. Plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tandem {

struct BlockHash {
  std::array<uint64_t, 2> words{};
  bool operator==(const BlockHash&) const = default;
};

struct BlockHashIndex {  // for unordered containers
  size_t operator()(const BlockHash& hash) const { return static_cast<size_t>(hash.words[0]); }
};

}  // namespace tandem
