// Who uses which KV block: logical blocks with at most one replica per memory tier, reference
// counts, copy-on-write, and the prefix cache over them (decisions.md 2 and 3). Bookkeeping only:
// owns no memory and copies nothing; what must be copied is returned. Today one tier, the
// accelerator's, is in use.
//
// A full block may be registered under its hash once it is computed. When its last user leaves, it
// stays cached, counts as free, and is evicted least recently used first. Unregistered blocks are
// free at once. Threads: engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "kv/block_hash.h"
#include "kv/block_pool.h"
#include "plan/step.h"

namespace tandem {

// The blocks of one sequence, in order of position. Changed by KvManager only, and released through
// it before destruction.
class SequenceKv {
 public:
  SequenceKv() = default;
  SequenceKv(SequenceKv&&) = default;
  SequenceKv& operator=(SequenceKv&&) = default;
  SequenceKv(const SequenceKv&) = delete;
  SequenceKv& operator=(const SequenceKv&) = delete;

  [[nodiscard]] std::span<const BlockId> table() const { return table_; }
  [[nodiscard]] int32_t blocks() const { return static_cast<int32_t>(table_.size()); }
  // At most this many of its blocks have other users too.
  [[nodiscard]] int32_t shared_blocks() const { return shared_; }

 private:
  friend class KvManager;
  std::vector<int32_t> logical_;  // ids of logical blocks
  std::vector<BlockId> table_;    // their accelerator replicas
  int32_t registered_ = 0;        // leading blocks known to the prefix cache, or passed over
  int32_t shared_ = 0;
};

struct PrefixMatch {
  int32_t tokens = 0;
  int32_t blocks = 0;
  int32_t free_blocks = 0;  // of `blocks`, those that count as free now
};

enum class PrefixCaching : uint8_t { kOff, kOn };

class KvManager {
 public:
  // Needs total_blocks > 0, block_tokens > 0.
  KvManager(int64_t total_blocks, int32_t block_tokens, PrefixCaching caching);

  [[nodiscard]] int64_t total_blocks() const { return pool_.total_blocks(); }
  [[nodiscard]] int64_t free_blocks() const { return pool_.free_blocks() + cached_free_; }
  [[nodiscard]] int64_t cached_free_blocks() const { return cached_free_; }
  [[nodiscard]] int32_t block_tokens() const { return block_tokens_; }
  [[nodiscard]] int32_t blocks_for(int64_t tokens) const {
    return static_cast<int32_t>((tokens + block_tokens_ - 1) / block_tokens_);
  }

  // The longest cached run of leading blocks that leaves at least one of `known_tokens` to compute.
  // Changes nothing.
  [[nodiscard]] PrefixMatch match(std::span<const BlockHash> hashes, int32_t known_tokens) const;
  // Gives an empty `kv` the blocks of that match.
  PrefixMatch attach(SequenceKv& kv, std::span<const BlockHash> hashes, int32_t known_tokens);

  // Makes `kv` cover `tokens` positions. False, and nothing changed, when there are not enough free
  // blocks.
  [[nodiscard]] bool grow(SequenceKv& kv, int32_t tokens);

  // Does writing at `position` need a copy first, because its block has other users?
  [[nodiscard]] bool needs_copy(const SequenceKv& kv, int32_t position) const;
  // Replaces that block by a new one of its own; the caller copies. Nullopt, and nothing changed,
  // when no block is free.
  [[nodiscard]] std::optional<BlockCopy> make_writable(SequenceKv& kv, int32_t position);

  // A second user of the blocks that cover the first `tokens` positions of `parent`.
  [[nodiscard]] SequenceKv fork(SequenceKv& parent, int32_t tokens);

  // The first `computed_tokens` positions of `kv` hold KV; `hashes` names its full blocks.
  // Registers the new full ones.
  void register_computed(SequenceKv& kv, std::span<const BlockHash> hashes,
                         int32_t computed_tokens);

  // Gives up all blocks of `kv`.
  void release(SequenceKv& kv);

  // Recounts everything; an error says what does not agree. Costs O(blocks).
  [[nodiscard]] Status audit() const;

 private:
  struct Replica {
    BlockId block{-1};
    int32_t references = 0;
  };
  struct LogicalBlock {
    std::array<Replica, kTiers> replicas;
    BlockHash hash;
    bool in_use = false;
    bool registered = false;
    int32_t older = -1;  // neighbours in the list of cached blocks without a user
    int32_t newer = -1;
    [[nodiscard]] Replica& here() { return replicas[static_cast<size_t>(Tier::kAccelerator)]; }
    [[nodiscard]] const Replica& here() const {
      return replicas[static_cast<size_t>(Tier::kAccelerator)];
    }
  };

  [[nodiscard]] LogicalBlock& logical(int32_t id) { return logical_[static_cast<size_t>(id)]; }
  [[nodiscard]] const LogicalBlock& logical(int32_t id) const {
    return logical_[static_cast<size_t>(id)];
  }
  std::optional<int32_t> take_block();
  void evict(int32_t id);
  void add_user(int32_t id);
  void drop_user(int32_t id);
  void link_newest(int32_t id);
  void unlink(int32_t id);
  void forget(int32_t id);

  BlockPool pool_;
  int32_t block_tokens_;
  PrefixCaching caching_;
  std::vector<LogicalBlock> logical_;
  std::vector<int32_t> free_logical_;
  std::unordered_map<BlockHash, int32_t, BlockHashIndex> by_hash_;
  int32_t oldest_ = -1;
  int32_t newest_ = -1;
  int64_t cached_free_ = 0;
};

}  // namespace tandem
