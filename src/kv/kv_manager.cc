#include "kv/kv_manager.h"

#include <algorithm>

#include "base/check.h"

namespace tandem {

KvManager::KvManager(int64_t total_blocks, int32_t block_tokens, PrefixCaching caching,
                     int64_t host_blocks)
    : sides_{Side(total_blocks), Side(host_blocks)},
      block_tokens_(block_tokens),
      caching_(caching) {
  CHECK(total_blocks > 0 && block_tokens > 0 && host_blocks >= 0, "{} and {} blocks of {} tokens",
        total_blocks, host_blocks, block_tokens);
  const int64_t most = total_blocks + host_blocks;  // every logical block has a replica
  logical_.resize(static_cast<size_t>(most));
  free_logical_.reserve(logical_.size());
  for (int64_t id = most - 1; id >= 0; --id) {
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
    const Replica& here = replica(entry->second, Tier::kAccelerator);
    if (!here.exists() || here.filling) {
      break;
    }
    found.free_blocks += here.references == 0 ? 1 : 0;
    ++found.blocks;
  }
  found.tokens = found.blocks * block_tokens_;
  return found;
}

PrefixMatch KvManager::attach(SequenceKv& kv, std::span<const BlockHash> hashes,
                              int32_t known_tokens) {
  CHECK(kv.blocks() == 0 && kv.tier_ == Tier::kAccelerator,
        "a prefix can only be attached to an empty sequence, this one has {} blocks", kv.blocks());
  const PrefixMatch found = match(hashes, known_tokens);
  name(kv);
  for (int32_t i = 0; i < found.blocks; ++i) {
    const int32_t id = by_hash_.at(hashes[static_cast<size_t>(i)]);
    add_user(id, kv.tier_, kv.user_);
    kv.logical_.push_back(id);
    kv.table_.push_back(replica(id, kv.tier_).block);
  }
  kv.registered_ = found.blocks;
  return found;
}

void KvManager::begin_on(SequenceKv& kv, Tier tier) {
  CHECK(kv.blocks() == 0 && !kv.moving(), "a sequence of {} blocks begins on another tier",
        kv.blocks());
  kv.tier_ = tier;
}

bool KvManager::grow_by_blocks(SequenceKv& kv, int32_t tokens) {
  CHECK(!kv.moving(), "a sequence of {} blocks grows while it moves", kv.blocks());
  const int32_t wanted = blocks_for(tokens) - kv.blocks();
  if (wanted > free_blocks(kv.tier_)) {
    return false;
  }
  name(kv);
  for (int32_t i = 0; i < wanted; ++i) {
    const std::optional<int32_t> id = take_block(kv.tier_, kv.user_);
    CHECK(id.has_value(), "{} blocks were free, but none could be taken", free_blocks(kv.tier_));
    kv.logical_.push_back(*id);
    kv.table_.push_back(replica(*id, kv.tier_).block);
  }
  return true;
}

bool KvManager::shares_block(const SequenceKv& kv, int32_t position) const {
  const int32_t place = position / block_tokens_;
  return place < kv.blocks() &&
         replica(kv.logical_[static_cast<size_t>(place)], kv.tier_).references > 1;
}

std::optional<BlockCopy> KvManager::make_writable(SequenceKv& kv, int32_t position) {
  CHECK(!kv.moving(), "a sequence of {} blocks is written while it moves", kv.blocks());
  const std::optional<int32_t> id = take_block(kv.tier_, kv.user_);
  if (!id.has_value()) {
    return std::nullopt;
  }
  const auto place = static_cast<size_t>(position / block_tokens_);
  const BlockCopy copy{kv.table_[place], replica(*id, kv.tier_).block};
  drop_user(kv.logical_[place], kv.tier_, kv.user_);
  kv.logical_[place] = *id;
  kv.table_[place] = copy.target;
  kv.registered_ = std::min(kv.registered_, static_cast<int32_t>(place));
  return copy;
}

SequenceKv KvManager::fork(SequenceKv& parent, int32_t tokens) {
  SequenceKv child;
  const auto count = static_cast<size_t>(blocks_for(tokens));
  CHECK(count <= parent.logical_.size() && !parent.moving(),
        "fork at {} tokens of a sequence with {} blocks", tokens, parent.blocks());
  child.tier_ = parent.tier_;
  child.logical_.assign(parent.logical_.begin(),
                        parent.logical_.begin() + static_cast<std::ptrdiff_t>(count));
  child.table_.assign(parent.table_.begin(),
                      parent.table_.begin() + static_cast<std::ptrdiff_t>(count));
  name(child);
  for (const int32_t id : child.logical_) {
    add_user(id, child.tier_, child.user_);
  }
  child.registered_ = std::min(parent.registered_, static_cast<int32_t>(count));
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
    const auto place = static_cast<size_t>(kv.registered_);
    const int32_t id = kv.logical_[place];
    if (logical(id).registered) {
      continue;
    }
    const auto [entry, added] = by_hash_.emplace(hashes[place], id);
    if (added) {
      logical(id).hash = hashes[place];
      logical(id).registered = true;
    } else {
      adopt(kv, place, entry->second);
    }
  }
}

// The same content was computed twice. The first stays the cached one; where that one lies on the
// other tier only, it takes the new replica over, so that this tier has it cached too.
void KvManager::adopt(SequenceKv& kv, size_t place, int32_t known) {
  const int32_t id = kv.logical_[place];
  Replica& mine = replica(id, kv.tier_);
  if (replica(known, kv.tier_).exists() || mine.references != 1 ||
      replica(id, other_tier(kv.tier_)).exists()) {
    return;
  }
  replica(known, kv.tier_) = mine;
  mine = Replica{};
  free_logical_.push_back(id);
  kv.logical_[place] = known;
}

void KvManager::shrink(SequenceKv& kv, int32_t tokens) {
  CHECK(!kv.moving(), "a sequence of {} blocks shrinks while it moves", kv.blocks());
  for (int32_t left = blocks_for(tokens); kv.blocks() > left;) {
    drop_user(kv.logical_.back(), kv.tier_, kv.user_);
    kv.logical_.pop_back();
    kv.table_.pop_back();
  }
  kv.registered_ = std::min(kv.registered_, kv.blocks());
}

void KvManager::release(SequenceKv& kv) {
  CHECK(!kv.moving(), "a sequence of {} blocks is released while it moves", kv.blocks());
  // Last block first: the tail of a prefix is the least useful part of it and should be evicted
  // before its head.
  for (auto id = kv.logical_.rbegin(); id != kv.logical_.rend(); ++id) {
    drop_user(*id, kv.tier_, kv.user_);
  }
  if (kv.user_ >= 0) {
    free_users_.push_back(kv.user_);
  }
  kv = SequenceKv{};
}

// ---------------------------------------------------------------- from one tier to the other

std::optional<std::vector<TierTransfer::Pair>> KvManager::begin_transfer(SequenceKv& kv,
                                                                         int32_t computed_tokens) {
  CHECK(!kv.moving() && kv.blocks() == blocks_for(computed_tokens) && kv.blocks() > 0,
        "a sequence of {} blocks moves at {} tokens", kv.blocks(), computed_tokens);
  const Tier target = other_tier(kv.tier_);
  const auto full = static_cast<size_t>(computed_tokens / block_tokens_);
  const auto shareable = [&](size_t place) {
    return place < full && replica(kv.logical_[place], target).exists();
  };
  int64_t wanted = 0;
  for (size_t place = 0; place < kv.logical_.size(); ++place) {
    wanted += shareable(place) && replica(kv.logical_[place], target).references > 0 ? 0 : 1;
  }
  if (wanted > free_blocks(target)) {
    return std::nullopt;
  }
  // What is there is held first: taking the rest may evict.
  auto move = std::make_unique<SequenceKv::Move>();
  move->target.assign(kv.logical_.size(), -1);
  for (size_t place = 0; place < kv.logical_.size(); ++place) {
    if (shareable(place)) {
      move->target[place] = kv.logical_[place];
      add_user(move->target[place], target, kv.user_);
    }
  }
  std::vector<TierTransfer::Pair> pairs;
  for (size_t place = 0; place < kv.logical_.size(); ++place) {
    if (move->target[place] >= 0) {
      continue;
    }
    int32_t id = kv.logical_[place];
    if (place < full) {
      const std::optional<BlockId> block = take_physical(target);
      CHECK(block.has_value(), "{} blocks were free, but none could be taken", free_blocks(target));
      replica(id, target).block = *block;
      add_user(id, target, kv.user_);
    } else {
      const std::optional<int32_t> own_block = take_block(target, kv.user_);
      CHECK(own_block.has_value(), "{} blocks were free, but none could be taken",
            free_blocks(target));
      id = *own_block;
    }
    replica(id, target).filling = true;
    move->target[place] = id;
    move->filling.push_back(id);
    const BlockId from = kv.table_[place];
    const BlockId to = replica(id, target).block;
    pairs.push_back(target == Tier::kHost ? TierTransfer::Pair{from, to}
                                          : TierTransfer::Pair{to, from});
  }
  kv.move_ = std::move(move);
  return pairs;
}

void KvManager::copied(SequenceKv& kv) {
  CHECK(kv.moving(), "a sequence of {} blocks was copied, but does not move", kv.blocks());
  for (const int32_t id : kv.move_->filling) {
    replica(id, other_tier(kv.tier_)).filling = false;
  }
  kv.move_->filling.clear();
}

bool KvManager::transfer_ready(const SequenceKv& kv) const {
  return kv.moving() && std::ranges::none_of(kv.move_->target, [&](int32_t id) {
           return replica(id, other_tier(kv.tier_)).filling;
         });
}

void KvManager::commit_transfer(SequenceKv& kv) {
  CHECK(kv.moving() && transfer_ready(kv), "the copy of a sequence of {} blocks is not done",
        kv.blocks());
  for (auto id = kv.logical_.rbegin(); id != kv.logical_.rend(); ++id) {
    drop_user(*id, kv.tier_, kv.user_);
  }
  kv.tier_ = other_tier(kv.tier_);
  kv.logical_ = std::move(kv.move_->target);
  kv.move_.reset();
  for (size_t place = 0; place < kv.logical_.size(); ++place) {
    kv.table_[place] = replica(kv.logical_[place], kv.tier_).block;
  }
}

void KvManager::abort_transfer(SequenceKv& kv) {
  CHECK(kv.moving() && kv.move_->filling.empty(),
        "the copy of a sequence of {} blocks is still under way", kv.blocks());
  for (auto id = kv.move_->target.rbegin(); id != kv.move_->target.rend(); ++id) {
    drop_user(*id, other_tier(kv.tier_), kv.user_);
  }
  kv.move_.reset();
}

// ---------------------------------------------------------------- blocks out of control

void KvManager::retire(Tier tier, BlockId block) {
  Side& here = side(tier);
  here.pool.retire(block);
  for (int32_t id = here.oldest; id >= 0; id = replica(id, tier).newer) {
    if (replica(id, tier).block == block) {  // cached and unused: it could be evicted for another
      unlink(id, tier);
      drop_replica(id, tier);
      return;
    }
  }
}

// ---------------------------------------------------------------- replicas and users

void KvManager::name(SequenceKv& kv) {
  if (kv.user_ >= 0) {
    return;
  }
  if (free_users_.empty()) {
    free_users_.push_back(static_cast<int32_t>(own_.size()));
    own_.push_back({});
  }
  kv.user_ = free_users_.back();
  free_users_.pop_back();
}

std::optional<BlockId> KvManager::take_physical(Tier tier) {
  Side& here = side(tier);
  if (here.pool.free_blocks() == 0 && here.oldest >= 0) {
    const int32_t evicted = here.oldest;
    unlink(evicted, tier);
    drop_replica(evicted, tier);
  }
  return here.pool.take();
}

std::optional<int32_t> KvManager::take_block(Tier tier, int32_t user) {
  const std::optional<BlockId> physical = take_physical(tier);
  if (!physical.has_value()) {
    return std::nullopt;
  }
  CHECK(!free_logical_.empty(), "more replicas than logical blocks");
  const int32_t id = free_logical_.back();
  free_logical_.pop_back();
  logical(id) = LogicalBlock{};
  replica(id, tier).block = *physical;
  add_user(id, tier, user);
  return id;
}

// With its last replica the logical block goes too.
void KvManager::drop_replica(int32_t id, Tier tier) {
  side(tier).pool.give_back(replica(id, tier).block);
  replica(id, tier) = Replica{};
  LogicalBlock& block = logical(id);
  if (block.in_use()) {
    return;
  }
  if (block.registered) {
    by_hash_.erase(block.hash);
  }
  block.registered = false;
  free_logical_.push_back(id);
}

void KvManager::add_user(int32_t id, Tier tier, int32_t user) {
  Replica& here = replica(id, tier);
  if (here.references == 0 && (here.older >= 0 || here.newer >= 0 || side(tier).oldest == id)) {
    unlink(id, tier);
  }
  if (here.references == 1) {
    --own(static_cast<int32_t>(here.users) - 1, tier);
  }
  ++here.references;
  here.users ^= static_cast<uint32_t>(user) + 1;
  if (here.references == 1) {
    ++own(user, tier);
  }
}

void KvManager::drop_user(int32_t id, Tier tier, int32_t user) {
  Replica& here = replica(id, tier);
  CHECK(here.exists() && here.references > 0, "block {} released without a user", id);
  --here.references;
  here.users ^= static_cast<uint32_t>(user) + 1;
  if (here.references == 1) {
    ++own(static_cast<int32_t>(here.users) - 1, tier);
  }
  if (here.references > 0) {
    return;
  }
  --own(user, tier);
  if (logical(id).registered && !side(tier).pool.retired(here.block)) {
    link_newest(id, tier);
  } else {
    drop_replica(id, tier);
  }
}

void KvManager::link_newest(int32_t id, Tier tier) {
  Side& here = side(tier);
  Replica& linked = replica(id, tier);
  linked.older = here.newest;
  linked.newer = -1;
  if (here.newest >= 0) {
    replica(here.newest, tier).newer = id;
  } else {
    here.oldest = id;
  }
  here.newest = id;
  ++here.cached_free;
}

void KvManager::unlink(int32_t id, Tier tier) {
  Side& here = side(tier);
  Replica& linked = replica(id, tier);
  (linked.older >= 0 ? replica(linked.older, tier).newer : here.oldest) = linked.newer;
  (linked.newer >= 0 ? replica(linked.newer, tier).older : here.newest) = linked.older;
  linked.older = -1;
  linked.newer = -1;
  --here.cached_free;
}

}  // namespace tandem
