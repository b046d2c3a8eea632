// The part of KvManager that brings prefixes back from the host.
#include <algorithm>
#include <utility>

#include "kv/kv_manager.h"

namespace tandem {

HostPrefix KvManager::match_on_host(std::span<const BlockHash> hashes, int32_t known_tokens) const {
  HostPrefix found;
  if (caching_ == PrefixCaching::kOff || total_blocks(Tier::kHost) == 0) {
    return found;
  }
  const int32_t limit =
      std::min(static_cast<int32_t>(hashes.size()), (known_tokens - 1) / block_tokens_);
  for (; found.blocks < limit; ++found.blocks) {
    const auto entry = by_hash_.find(hashes[static_cast<size_t>(found.blocks)]);
    if (entry == by_hash_.end()) {
      break;
    }
    const Replica& here = replica(entry->second, Tier::kAccelerator);
    const Replica& there = replica(entry->second, Tier::kHost);
    if (here.exists() && !here.filling) {
      found.in_use += here.references > 0 ? 1 : 0;
      continue;
    }
    if (!there.exists() || there.filling) {
      break;
    }
    ++found.missing;
    found.to_copy += here.exists() ? 0 : 1;
  }
  return found;
}

std::optional<PrefixFetch> KvManager::begin_fetch(std::span<const BlockHash> prefix) {
  PrefixFetch fetch;
  fetch.coming.tier_ = Tier::kHost;
  name(fetch.there);
  name(fetch.coming);
  for (const BlockHash& hash : prefix) {
    const int32_t id = by_hash_.at(hash);
    const Replica& here = replica(id, Tier::kAccelerator);
    SequenceKv& holder = here.exists() && !here.filling ? fetch.there : fetch.coming;
    add_user(id, holder.tier_, holder.user_);
    holder.logical_.push_back(id);
    holder.table_.push_back(replica(id, holder.tier_).block);
  }
  auto copies = begin_transfer(fetch.coming, fetch.coming.blocks() * block_tokens_);
  if (!copies.has_value()) {
    release(fetch.coming);
    release(fetch.there);
    return std::nullopt;
  }
  fetch.copies = *std::move(copies);
  return fetch;
}

// The head of a prefix is its most reused part. It is released last, so it is evicted last.
void KvManager::end_fetch(PrefixFetch& fetch) {
  abort_transfer(fetch.coming);
  release(fetch.coming);
  release(fetch.there);
}

}  // namespace tandem
