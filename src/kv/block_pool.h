// Which KV blocks of one memory tier are free. Bookkeeping only: owns no memory, copies nothing.
// Unit: one block = `block_tokens` token slots of every layer. Threads: engine thread only.
#pragma once

#include <cstdint>
#include <map>
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

  // `block` must be in use; releasing a block twice is a bug and stops the process.
  void give_back(BlockId block);

  // A writer that cannot be stopped may still write to the block. Its owner may keep it; after its
  // release it is out of use until it is restored. Both may be called more than once.
  void retire(BlockId block);
  void restore(BlockId block);
  [[nodiscard]] bool retired(BlockId block) const { return retired_.contains(block); }
  // Released and out of use.
  [[nodiscard]] int64_t blocks_out_of_use() const { return out_of_use_; }

  [[nodiscard]] int64_t free_blocks() const { return static_cast<int64_t>(free_.size()); }
  [[nodiscard]] int64_t total_blocks() const { return static_cast<int64_t>(in_use_.size()); }

 private:
  std::vector<BlockId> free_;  // used as a stack: the block freed last is the warmest in cache
  std::vector<bool> in_use_;   // by block id
  struct Retired {
    int32_t times = 0;
    bool given_back = false;
  };
  std::map<BlockId, Retired> retired_;  // mostly empty
  int64_t out_of_use_ = 0;
};

}  // namespace tandem
