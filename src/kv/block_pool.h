// Which KV blocks of one memory tier are free. Bookkeeping only: owns no memory, copies nothing.
// Unit: one block = `block_tokens` token slots of every layer. Threads: engine thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"

namespace tandem {

class BlockPool {
 public:
  // Hands out ids 0 .. total_blocks - 1.
  explicit BlockPool(int64_t total_blocks);

  // A free block, or nullopt: being full is normal.
  [[nodiscard]] std::optional<BlockId> take();

  // `block` must be in use; giving one back twice is a bug and stops the process.
  void give_back(BlockId block);

  [[nodiscard]] int64_t free_blocks() const { return static_cast<int64_t>(free_.size()); }
  [[nodiscard]] int64_t total_blocks() const { return static_cast<int64_t>(in_use_.size()); }

 private:
  std::vector<BlockId> free_;  // used as a stack: the block freed last is the warmest in cache
  std::vector<bool> in_use_;   // by block id
};

}  // namespace tandem
