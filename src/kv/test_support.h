// For tests of the KV cache: prompts of counting tokens, and sequences that have computed them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <string_view>
#include <vector>

#include "kv/kv_manager.h"

namespace tandem {

inline constexpr int32_t kBlock = 4;

inline std::vector<BlockHash> hashes_of(const std::vector<TokenId>& tokens,
                                        std::string_view tenant = "") {
  std::vector<BlockHash> hashes;
  extend_hashes(hashes, root_hash(tenant), tokens, kBlock);
  return hashes;
}

inline std::vector<TokenId> tokens_from(TokenId first, int count) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Computes all of `tokens` in a new sequence, as a prefill would.
inline SequenceKv computed(KvManager& manager, const std::vector<TokenId>& tokens) {
  SequenceKv kv;
  const std::vector<BlockHash> hashes = hashes_of(tokens);
  manager.attach(kv, hashes, static_cast<int32_t>(tokens.size()));
  EXPECT_TRUE(manager.grow(kv, static_cast<int32_t>(tokens.size())));
  manager.register_computed(kv, hashes, static_cast<int32_t>(tokens.size()));
  return kv;
}

inline void expect_books(const KvManager& manager, std::vector<const SequenceKv*> users) {
  const Status books = manager.audit(users);
  EXPECT_TRUE(books.ok()) << books.error().message;
}

}  // namespace tandem
