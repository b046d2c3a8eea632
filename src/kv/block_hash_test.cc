#include "kv/block_hash.h"

#include <gtest/gtest.h>

#include <numeric>

namespace tandem {
namespace {

std::vector<TokenId> counting(int count) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 5);
  return tokens;
}

TEST(BlockHash, OnlyFullBlocksAreNamedAndExtendingEqualsStartingAnew) {
  const std::vector<TokenId> tokens = counting(100);
  const BlockHash root = root_hash("");
  std::vector<BlockHash> whole;
  extend_hashes(whole, root, tokens, 32);
  EXPECT_EQ(whole.size(), 3U);
  std::vector<BlockHash> grown;
  extend_hashes(grown, root, std::span(tokens).first(40), 32);
  EXPECT_EQ(grown.size(), 1U);
  extend_hashes(grown, root, tokens, 32);
  EXPECT_EQ(grown, whole);
}

TEST(BlockHash, TheSameBlockAfterAnotherPrefixOrForAnotherTenantHasAnotherName) {
  const std::vector<TokenId> tokens = counting(32);
  const BlockHash mine = chain_hash(root_hash("a"), tokens);
  EXPECT_NE(mine, chain_hash(root_hash("b"), tokens));
  EXPECT_NE(mine, chain_hash(mine, tokens));
  EXPECT_EQ(mine, chain_hash(root_hash("a"), tokens));
}

}  // namespace
}  // namespace tandem
