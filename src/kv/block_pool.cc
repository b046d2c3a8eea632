#include "kv/block_pool.h"

#include "base/check.h"

namespace tandem {

BlockPool::BlockPool(int64_t total_blocks) : in_use_(static_cast<size_t>(total_blocks), false) {
  free_.reserve(in_use_.size());
  for (int64_t id = total_blocks - 1; id >= 0; --id) {
    free_.push_back(static_cast<BlockId>(id));
  }
}

std::optional<BlockId> BlockPool::take() {
  if (free_.empty()) {
    return std::nullopt;
  }
  const BlockId block = free_.back();
  free_.pop_back();
  in_use_[static_cast<size_t>(raw(block))] = true;
  return block;
}

void BlockPool::give_back(BlockId block) {
  const auto index = static_cast<size_t>(raw(block));
  CHECK(index < in_use_.size() && in_use_[index], "block {} of {} given back, but it is not in use",
        index, in_use_.size());
  in_use_[index] = false;
  free_.push_back(block);
}

}  // namespace tandem
