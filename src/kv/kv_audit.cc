// The part of KvManager that recounts its books.
#include <fmt/format.h>

#include "base/check.h"
#include "kv/kv_manager.h"

namespace tandem {
namespace {

Error wrong(std::string what) { return Error{ErrorCode::kInternal, std::move(what), ""}; }

}  // namespace

Status KvManager::audit(std::span<const SequenceKv* const> users) const {
  int64_t in_use = 0;
  int64_t registered = 0;
  for (const LogicalBlock& block : logical_) {
    in_use += block.in_use() ? 1 : 0;
    registered += block.registered ? 1 : 0;
  }
  if (registered != static_cast<int64_t>(by_hash_.size()) ||
      in_use + static_cast<int64_t>(free_logical_.size()) !=
          static_cast<int64_t>(logical_.size())) {
    return wrong(
        fmt::format("logical blocks do not add up: {} in use, {} free, {} in all; {} "
                    "registered, {} indexed",
                    in_use, free_logical_.size(), logical_.size(), registered, by_hash_.size()));
  }
  for (const auto& [hash, id] : by_hash_) {
    if (!logical(id).registered || logical(id).hash != hash || !logical(id).in_use()) {
      return wrong(fmt::format("block {} is indexed without being registered so", id));
    }
  }
  RETURN_IF_ERROR(audit_side(Tier::kAccelerator));
  RETURN_IF_ERROR(audit_side(Tier::kHost));
  return audit_references(users);
}

Status KvManager::audit_side(Tier tier) const {
  const Side& here = side(tier);
  int64_t listed = 0;
  for (int32_t id = here.oldest; id >= 0; id = replica(id, tier).newer) {
    const Replica& cached = replica(id, tier);
    if (!cached.exists() || !logical(id).registered || cached.references != 0 || cached.filling) {
      return wrong(fmt::format("block {} is listed as cached without being so", id));
    }
    if (++listed > here.cached_free) {
      break;
    }
  }
  int64_t replicas = 0;
  int64_t unused = 0;
  for (const LogicalBlock& block : logical_) {
    const Replica& one = block.replicas[index(tier)];
    replicas += one.exists() ? 1 : 0;
    unused += one.exists() && one.references == 0 ? 1 : 0;
  }
  if (listed != here.cached_free || unused != listed ||
      replicas + here.pool.free_blocks() + here.pool.blocks_out_of_use() !=
          here.pool.total_blocks()) {
    return wrong(
        fmt::format("KV blocks of tier {} do not add up: {} in use, {} free, {} in all; "
                    "{} cached without a user, {} without a user, {} listed",
                    index(tier), replicas, here.pool.free_blocks(), here.pool.total_blocks(),
                    here.cached_free, unused, listed));
  }
  return {};
}

Status KvManager::audit_references(std::span<const SequenceKv* const> users) const {
  std::vector<std::array<int32_t, kTiers>> references(logical_.size());
  for (const SequenceKv* kv : users) {
    std::array<int32_t, kTiers> own{};
    const auto count = [&](std::span<const int32_t> ids, Tier tier) {
      for (const int32_t id : ids) {
        ++references[static_cast<size_t>(id)][index(tier)];
        own[index(tier)] += replica(id, tier).references == 1 ? 1 : 0;
      }
    };
    count(kv->logical_, kv->tier_);
    if (kv->moving()) {
      count(kv->move_->target, other_tier(kv->tier_));
    }
    for (size_t place = 0; place < kv->logical_.size(); ++place) {
      const Replica& here = replica(kv->logical_[place], kv->tier_);
      if (here.block != kv->table_[place] || here.filling) {
        return wrong(
            fmt::format("place {} of a sequence of {} blocks leads elsewhere or is not "
                        "copied yet",
                        place, kv->blocks()));
      }
    }
    if (kv->user_ >= 0 && own != own_[static_cast<size_t>(kv->user_)]) {
      return wrong(fmt::format("user {} has {} and {} blocks of its own, {} and {} are counted",
                               kv->user_, own[0], own[1], own_[static_cast<size_t>(kv->user_)][0],
                               own_[static_cast<size_t>(kv->user_)][1]));
    }
  }
  for (size_t id = 0; id < logical_.size(); ++id) {
    for (size_t tier = 0; tier < kTiers; ++tier) {
      if (logical_[id].replicas[tier].references != references[id][tier]) {
        return wrong(fmt::format("block {} has {} users on tier {}, {} are counted", id,
                                 references[id][tier], tier,
                                 logical_[id].replicas[tier].references));
      }
    }
  }
  return {};
}

}  // namespace tandem
