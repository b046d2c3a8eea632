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
  if (const auto entry = retired_.find(block); entry != retired_.end()) {
    entry->second.given_back = true;
    ++out_of_use_;
    return;
  }
  free_.push_back(block);
}

void BlockPool::retire(BlockId block) {
  const auto index = static_cast<size_t>(raw(block));
  CHECK(index < in_use_.size(), "block {} of {} is retired", index, in_use_.size());
  CHECK(in_use_[index] || retired(block), "block {} is retired while it is free", index);
  ++retired_[block].times;
}

void BlockPool::restore(BlockId block) {
  const auto entry = retired_.find(block);
  CHECK(entry != retired_.end(), "block {} is restored, but was not retired", raw(block));
  if (--entry->second.times > 0) {
    return;
  }
  if (entry->second.given_back) {
    --out_of_use_;
    free_.push_back(block);
  }
  retired_.erase(entry);
}

}  // namespace tandem
