#include "kv/kv_manager.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace tandem {

KvManager::KvManager(int64_t total_blocks, int32_t block_tokens, PrefixCaching caching)
    : pool_(total_blocks), block_tokens_(block_tokens), caching_(caching) {
  CHECK(total_blocks > 0 && block_tokens > 0, "{} blocks of {} tokens", total_blocks, block_tokens);
  logical_.resize(static_cast<size_t>(total_blocks));
  free_logical_.reserve(logical_.size());
  for (int64_t id = total_blocks - 1; id >= 0; --id) {
    free_logical_.push_back(static_cast<int32_t>(id));
  }
  by_hash_.reserve(logical_.size());
}

PrefixMatch KvManager::match(std::span<const BlockHash> hashes, int32_t known_tokens) const {
  PrefixMatch found;
  if (caching_ == PrefixCaching::kOff) {
    return found;
  }
  const int32_t limit =
      std::min(static_cast<int32_t>(hashes.size()), (known_tokens - 1) / block_tokens_);
  while (found.blocks < limit) {
    const auto entry = by_hash_.find(hashes[static_cast<size_t>(found.blocks)]);
    if (entry == by_hash_.end()) {
      break;
    }
    found.free_blocks += logical(entry->second).here().references == 0 ? 1 : 0;
    ++found.blocks;
  }
  found.tokens = found.blocks * block_tokens_;
  return found;
}

PrefixMatch KvManager::attach(SequenceKv& kv, std::span<const BlockHash> hashes,
                              int32_t known_tokens) {
  CHECK(kv.blocks() == 0,
        "a prefix can only be attached to an empty sequence, this one has {} blocks", kv.blocks());
  const PrefixMatch found = match(hashes, known_tokens);
  for (int32_t i = 0; i < found.blocks; ++i) {
    const int32_t id = by_hash_.at(hashes[static_cast<size_t>(i)]);
    add_user(id);
    kv.logical_.push_back(id);
    kv.table_.push_back(logical(id).here().block);
  }
  kv.registered_ = found.blocks;
  kv.shared_ = found.blocks;
  return found;
}

bool KvManager::grow(SequenceKv& kv, int32_t tokens) {
  const int32_t wanted = blocks_for(tokens) - kv.blocks();
  if (wanted > free_blocks()) {
    return false;
  }
  for (int32_t i = 0; i < wanted; ++i) {
    const std::optional<int32_t> id = take_block();
    CHECK(id.has_value(), "{} blocks were free, but none could be taken", free_blocks());
    kv.logical_.push_back(*id);
    kv.table_.push_back(logical(*id).here().block);
  }
  return true;
}

bool KvManager::needs_copy(const SequenceKv& kv, int32_t position) const {
  const int32_t index = position / block_tokens_;
  return index < kv.blocks() &&
         logical(kv.logical_[static_cast<size_t>(index)]).here().references > 1;
}

std::optional<BlockCopy> KvManager::make_writable(SequenceKv& kv, int32_t position) {
  const std::optional<int32_t> id = take_block();
  if (!id.has_value()) {
    return std::nullopt;
  }
  const auto index = static_cast<size_t>(position / block_tokens_);
  const BlockCopy copy{kv.table_[index], logical(*id).here().block};
  drop_user(kv.logical_[index]);
  kv.logical_[index] = *id;
  kv.table_[index] = copy.target;
  kv.shared_ = std::min(kv.shared_, static_cast<int32_t>(index));
  kv.registered_ = std::min(kv.registered_, static_cast<int32_t>(index));
  return copy;
}

SequenceKv KvManager::fork(SequenceKv& parent, int32_t tokens) {
  SequenceKv child;
  const auto count = static_cast<size_t>(blocks_for(tokens));
  CHECK(count <= parent.logical_.size(), "fork at {} tokens of a sequence with {} blocks", tokens,
        parent.blocks());
  child.logical_.assign(parent.logical_.begin(),
                        parent.logical_.begin() + static_cast<std::ptrdiff_t>(count));
  child.table_.assign(parent.table_.begin(),
                      parent.table_.begin() + static_cast<std::ptrdiff_t>(count));
  for (const int32_t id : child.logical_) {
    add_user(id);
  }
  child.registered_ = std::min(parent.registered_, static_cast<int32_t>(count));
  child.shared_ = static_cast<int32_t>(count);
  parent.shared_ = std::max(parent.shared_, static_cast<int32_t>(count));
  return child;
}

void KvManager::register_computed(SequenceKv& kv, std::span<const BlockHash> hashes,
                                  int32_t computed_tokens) {
  if (caching_ == PrefixCaching::kOff) {
    return;
  }
  const int32_t full =
      std::min(computed_tokens / block_tokens_, static_cast<int32_t>(hashes.size()));
  for (; kv.registered_ < full; ++kv.registered_) {
    const auto index = static_cast<size_t>(kv.registered_);
    const int32_t id = kv.logical_[index];
    LogicalBlock& block = logical(id);
    if (block.registered) {
      continue;
    }
    // The same content computed twice at the same time: the first stays the cached one.
    if (by_hash_.emplace(hashes[index], id).second) {
      block.hash = hashes[index];
      block.registered = true;
    }
  }
}

void KvManager::release(SequenceKv& kv) {
  // Last block first: the tail of a prefix is the least useful part of it and should be evicted
  // before its head.
  for (auto id = kv.logical_.rbegin(); id != kv.logical_.rend(); ++id) {
    drop_user(*id);
  }
  kv = SequenceKv{};
}

std::optional<int32_t> KvManager::take_block() {
  if (pool_.free_blocks() == 0 && oldest_ >= 0) {
    evict(oldest_);
  }
  const std::optional<BlockId> physical = pool_.take();
  if (!physical.has_value()) {
    return std::nullopt;
  }
  CHECK(!free_logical_.empty(), "more replicas than logical blocks");
  const int32_t id = free_logical_.back();
  free_logical_.pop_back();
  LogicalBlock& block = logical(id);
  block = LogicalBlock{};
  block.in_use = true;
  block.here() = {*physical, 1};
  return id;
}

void KvManager::evict(int32_t id) {
  unlink(id);
  forget(id);
}

void KvManager::forget(int32_t id) {
  LogicalBlock& block = logical(id);
  if (block.registered) {
    by_hash_.erase(block.hash);
  }
  pool_.give_back(block.here().block);
  block.in_use = false;
  block.registered = false;
  free_logical_.push_back(id);
}

void KvManager::add_user(int32_t id) {
  Replica& replica = logical(id).here();
  if (replica.references == 0) {
    unlink(id);
  }
  ++replica.references;
}

void KvManager::drop_user(int32_t id) {
  LogicalBlock& block = logical(id);
  CHECK(block.in_use && block.here().references > 0, "block {} released without a user", id);
  if (--block.here().references > 0) {
    return;
  }
  if (block.registered) {
    link_newest(id);
  } else {
    forget(id);
  }
}

void KvManager::link_newest(int32_t id) {
  LogicalBlock& block = logical(id);
  block.older = newest_;
  block.newer = -1;
  if (newest_ >= 0) {
    logical(newest_).newer = id;
  } else {
    oldest_ = id;
  }
  newest_ = id;
  ++cached_free_;
}

void KvManager::unlink(int32_t id) {
  const LogicalBlock& block = logical(id);
  (block.older >= 0 ? logical(block.older).newer : oldest_) = block.newer;
  (block.newer >= 0 ? logical(block.newer).older : newest_) = block.older;
  --cached_free_;
}

Status KvManager::audit() const {
  int64_t listed = 0;
  for (int32_t id = oldest_; id >= 0; id = logical(id).newer) {
    const LogicalBlock& block = logical(id);
    if (!block.in_use || !block.registered || block.here().references != 0) {
      return Error{ErrorCode::kInternal,
                   fmt::format("block {} is listed as cached without being so", id), ""};
    }
    ++listed;
  }
  int64_t in_use = 0;
  int64_t registered = 0;
  for (const LogicalBlock& block : logical_) {
    in_use += block.in_use ? 1 : 0;
    registered += block.registered ? 1 : 0;
  }
  if (listed != cached_free_ || registered != static_cast<int64_t>(by_hash_.size()) ||
      in_use + pool_.free_blocks() != pool_.total_blocks() ||
      in_use + static_cast<int64_t>(free_logical_.size()) !=
          static_cast<int64_t>(logical_.size())) {
    return Error{ErrorCode::kInternal,
                 fmt::format("KV blocks do not add up: {} in use, {} free, {} in all; {} cached "
                             "without a user, {} listed; {} "
                             "registered, {} indexed",
                             in_use, pool_.free_blocks(), pool_.total_blocks(), cached_free_,
                             listed, registered, by_hash_.size()),
                 ""};
  }
  return {};
}

}  // namespace tandem
