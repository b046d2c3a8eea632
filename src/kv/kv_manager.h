// Who uses which KV block: logical blocks with at most one replica per memory tier, a reference
// count per replica, copy-on-write, and the prefix cache over them.
// Bookkeeping only: owns no memory and copies nothing; what must be copied is returned.
//
// The KV of a sequence lies on one tier, the authoritative one. Between begin_transfer and
// commit_transfer it holds blocks on the other tier too; only full blocks are shared between tiers,
// a partial one always gets a logical block of its own on the other side, because it will be
// written.
//
// A full block may be registered under its hash once it is computed. When the last user of a
// replica leaves, the replica stays cached, counts as free, and is evicted least recently used
// first; where the other tier has one too, eviction loses nothing. Unregistered blocks are free at
// once. What of a prefix only the host holds can be fetched: its blocks then lie on both tiers, as
// cached ones. KvManager has more than 25 public methods because sequences, transfers and fetches
// change the same reference counts and lists. Threads: engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "kv/block_hash.h"
#include "kv/block_pool.h"
#include "plan/step.h"

namespace tandem {

constexpr Tier other_tier(Tier tier) {
  return tier == Tier::kAccelerator ? Tier::kHost : Tier::kAccelerator;
}

// The blocks of one sequence, in order of position. Changed by KvManager only, and released through
// it before destruction.
class SequenceKv {
 public:
  SequenceKv() = default;
  SequenceKv(SequenceKv&& other) noexcept { swap(other); }
  SequenceKv& operator=(SequenceKv&& other) noexcept {
    SequenceKv taken(std::move(other));
    swap(taken);
    return *this;
  }
  SequenceKv(const SequenceKv&) = delete;
  SequenceKv& operator=(const SequenceKv&) = delete;
  ~SequenceKv() = default;

  [[nodiscard]] Tier tier() const { return tier_; }                        // the authoritative one
  [[nodiscard]] std::span<const BlockId> table() const { return table_; }  // on that tier
  [[nodiscard]] int32_t blocks() const { return static_cast<int32_t>(table_.size()); }
  // A transfer has begun and is neither committed nor aborted.
  [[nodiscard]] bool moving() const { return move_ != nullptr; }

 private:
  friend class KvManager;
  struct Move {
    std::vector<int32_t> target;   // ids of the logical blocks on the other tier
    std::vector<int32_t> filling;  // of these, the ones that its own copy fills
  };
  void swap(SequenceKv& other) noexcept {
    std::swap(tier_, other.tier_);
    std::swap(user_, other.user_);
    std::swap(registered_, other.registered_);
    logical_.swap(other.logical_);
    table_.swap(other.table_);
    move_.swap(other.move_);
  }

  Tier tier_ = Tier::kAccelerator;
  int32_t user_ = -1;             // its name among the users of blocks; -1: it has none
  int32_t registered_ = 0;        // leading blocks known to the prefix cache, or passed over
  std::vector<int32_t> logical_;  // ids of logical blocks
  std::vector<BlockId> table_;    // their replicas on tier_
  std::unique_ptr<Move> move_;    // while it moves
};

struct PrefixMatch {
  int32_t tokens = 0;
  int32_t blocks = 0;
  int32_t free_blocks = 0;  // of `blocks`, those that count as free now
};

// What the accelerator could have of a prefix if it fetched what lies on the host only.
struct HostPrefix {
  int32_t blocks = 0;   // leading ones cached on either tier
  int32_t missing = 0;  // of these, not on the accelerator, or not yet
  int32_t to_copy = 0;  // of the missing, not on their way
  int32_t in_use = 0;   // of those on the accelerator, with users: they take no free block
};

// Blocks of a prefix on their way from the host. They belong to no sequence: when the fetch has
// ended they are cached blocks without a user. Released through the manager before destruction.
struct PrefixFetch {
  SequenceKv there;                        // on the accelerator already, held meanwhile
  SequenceKv coming;                       // the others, held on both tiers
  std::vector<TierTransfer::Pair> copies;  // none where others copy all that is missing
};

enum class PrefixCaching : uint8_t { kOff, kOn };

class KvManager {
 public:
  // Needs total_blocks > 0, block_tokens > 0, host_blocks >= 0; 0 means one tier.
  KvManager(int64_t total_blocks, int32_t block_tokens, PrefixCaching caching,
            int64_t host_blocks = 0);

  [[nodiscard]] int64_t total_blocks(Tier tier = Tier::kAccelerator) const {
    return side(tier).pool.total_blocks();
  }
  // Cached blocks without a user included.
  [[nodiscard]] int64_t free_blocks(Tier tier = Tier::kAccelerator) const {
    return side(tier).pool.free_blocks() + side(tier).cached_free;
  }
  [[nodiscard]] int64_t cached_free_blocks(Tier tier = Tier::kAccelerator) const {
    return side(tier).cached_free;
  }
  [[nodiscard]] int32_t block_tokens() const { return block_tokens_; }
  [[nodiscard]] int32_t blocks_for(int64_t tokens) const {
    return static_cast<int32_t>((tokens + block_tokens_ - 1) / block_tokens_);
  }
  // Blocks of `kv` that no other sequence uses on its tier: free again when `kv` is released or has
  // moved.
  [[nodiscard]] int32_t own_blocks(const SequenceKv& kv) const {
    return kv.user_ < 0 ? 0 : own_[static_cast<size_t>(kv.user_)][index(kv.tier_)];
  }

  // The longest run of leading blocks cached on the accelerator that leaves at least one of
  // `known_tokens` to compute. Changes nothing.
  [[nodiscard]] PrefixMatch match(std::span<const BlockHash> hashes, int32_t known_tokens) const;
  // Gives an empty `kv` the blocks of that match.
  PrefixMatch attach(SequenceKv& kv, std::span<const BlockHash> hashes, int32_t known_tokens);

  // Needs an empty `kv`, which will take its blocks from `tier`.
  void begin_on(SequenceKv& kv, Tier tier);

  // Makes `kv` cover `tokens` positions, on its tier. False, and nothing changed, when there are
  // not enough free blocks. Like everything that writes, not while it moves.
  [[nodiscard]] bool grow(SequenceKv& kv, int32_t tokens) {
    const bool covered = int64_t{kv.blocks()} * block_tokens_ >= tokens;
    return (covered && !kv.moving() && kv.blocks() > 0) || grow_by_blocks(kv, tokens);
  }

  // Does writing at `position` need a copy first, because its block has other users?
  [[nodiscard]] bool needs_copy(const SequenceKv& kv, int32_t position) const {
    return own_blocks(kv) != kv.blocks() && shares_block(kv, position);
  }
  // Replaces that block by a new one of its own on the same tier; the caller copies. Nullopt, and
  // nothing changed, when no block is free.
  [[nodiscard]] std::optional<BlockCopy> make_writable(SequenceKv& kv, int32_t position);

  // A second user of the blocks that cover the first `tokens` positions of `parent`.
  [[nodiscard]] SequenceKv fork(SequenceKv& parent, int32_t tokens);

  // The first `computed_tokens` positions of `kv` hold KV; `hashes` names its full blocks.
  // Registers the new full ones.
  void register_computed(SequenceKv& kv, std::span<const BlockHash> hashes,
                         int32_t computed_tokens);

  // Would that register anything?
  [[nodiscard]] bool registers(const SequenceKv& kv, int32_t computed_tokens) const {
    return caching_ == PrefixCaching::kOn &&
           computed_tokens >= (int64_t{kv.registered_} + 1) * block_tokens_;
  }

  // Gives up the blocks behind those that cover `tokens` positions: reserved, but never written
  // to.
  void shrink(SequenceKv& kv, int32_t tokens);

  // Gives up all blocks of `kv`. Not while it moves.
  void release(SequenceKv& kv);

  // ---- from one tier to the other
  // Reserves blocks on the other tier for the first `computed_tokens` positions, which are all that
  // `kv` covers, and says which to copy: none of those that are there already or on their way.
  // Nullopt, and nothing changed, when there are not enough free blocks.
  [[nodiscard]] std::optional<std::vector<TierTransfer::Pair>> begin_transfer(
      SequenceKv& kv, int32_t computed_tokens);
  // The copy that begin_transfer asked for is done.
  void copied(SequenceKv& kv);
  // Everything it needs on the other tier is there, what others copied included.
  [[nodiscard]] bool transfer_ready(const SequenceKv& kv) const;
  // Needs transfer_ready. The other tier is the authoritative one from now on, the blocks of this
  // one are given up.
  void commit_transfer(SequenceKv& kv);
  // Needs `copied`. Gives up the blocks of the other tier.
  void abort_transfer(SequenceKv& kv);

  // ---- a prefix that the host holds
  // Like match, with what lies on the host only. Changes nothing.
  [[nodiscard]] HostPrefix match_on_host(std::span<const BlockHash> hashes,
                                         int32_t known_tokens) const;
  // Takes blocks for what is missing of a prefix of match_on_host. Nullopt, and nothing changed but
  // who was used last, when there are not enough free ones.
  [[nodiscard]] std::optional<PrefixFetch> begin_fetch(std::span<const BlockHash> prefix);
  // Its own copies are done; those of others may not be.
  void fetch_copied(PrefixFetch& fetch) { copied(fetch.coming); }
  [[nodiscard]] bool fetch_ready(const PrefixFetch& fetch) const {
    return transfer_ready(fetch.coming);
  }
  // Needs fetch_copied.
  void end_fetch(PrefixFetch& fetch);

  // ---- blocks that something out of control may still write to
  // Its content stays valid for its users; the block is not handed out until it is restored.
  void retire(Tier tier, BlockId block);
  void restore(Tier tier, BlockId block) { side(tier).pool.restore(block); }
  [[nodiscard]] int64_t blocks_out_of_use(Tier tier) const {
    return side(tier).pool.blocks_out_of_use();
  }

  // Recounts everything; an error says what does not agree. `users`: every sequence that holds
  // blocks. Costs O(blocks).
  [[nodiscard]] Status audit(std::span<const SequenceKv* const> users) const;

 private:
  struct Replica {
    BlockId block{-1};  // -1: none on this tier
    int32_t references = 0;
    uint32_t users = 0;    // exclusive or of (user + 1): names the user when there is one
    bool filling = false;  // its copy is not done yet
    int32_t older = -1;    // neighbours in the list of cached replicas without a user
    int32_t newer = -1;
    [[nodiscard]] bool exists() const { return raw(block) >= 0; }
  };
  struct LogicalBlock {
    std::array<Replica, kTiers> replicas;
    BlockHash hash;
    bool registered = false;
    [[nodiscard]] bool in_use() const { return replicas[0].exists() || replicas[1].exists(); }
  };
  struct Side {
    explicit Side(int64_t blocks) : pool(blocks) {}
    BlockPool pool;
    int32_t oldest = -1;  // of the cached replicas without a user
    int32_t newest = -1;
    int64_t cached_free = 0;
  };

  static constexpr size_t index(Tier tier) { return static_cast<size_t>(tier); }
  [[nodiscard]] Side& side(Tier tier) { return sides_[index(tier)]; }
  [[nodiscard]] const Side& side(Tier tier) const { return sides_[index(tier)]; }
  [[nodiscard]] LogicalBlock& logical(int32_t id) { return logical_[static_cast<size_t>(id)]; }
  [[nodiscard]] const LogicalBlock& logical(int32_t id) const {
    return logical_[static_cast<size_t>(id)];
  }
  [[nodiscard]] Replica& replica(int32_t id, Tier tier) {
    return logical(id).replicas[index(tier)];
  }
  [[nodiscard]] const Replica& replica(int32_t id, Tier tier) const {
    return logical(id).replicas[index(tier)];
  }
  [[nodiscard]] int32_t& own(int32_t user, Tier tier) {
    return own_[static_cast<size_t>(user)][index(tier)];
  }

  bool grow_by_blocks(SequenceKv& kv, int32_t tokens);
  [[nodiscard]] bool shares_block(const SequenceKv& kv, int32_t position) const;
  void name(SequenceKv& kv);
  std::optional<BlockId> take_physical(Tier tier);
  std::optional<int32_t> take_block(Tier tier, int32_t user);
  void drop_replica(int32_t id, Tier tier);
  void add_user(int32_t id, Tier tier, int32_t user);
  void drop_user(int32_t id, Tier tier, int32_t user);
  void link_newest(int32_t id, Tier tier);
  void unlink(int32_t id, Tier tier);
  void adopt(SequenceKv& kv, size_t place, int32_t known);

  [[nodiscard]] Status audit_side(Tier tier) const;
  [[nodiscard]] Status audit_references(std::span<const SequenceKv* const> users) const;

  std::array<Side, kTiers> sides_;
  int32_t block_tokens_;
  PrefixCaching caching_;
  std::vector<LogicalBlock> logical_;
  std::vector<int32_t> free_logical_;
  std::unordered_map<BlockHash, int32_t, BlockHashIndex> by_hash_;
  std::vector<std::array<int32_t, kTiers>> own_;  // by user: replicas that it uses alone
  std::vector<int32_t> free_users_;
};

}  // namespace tandem
