#include <gtest/gtest.h>

#include <random>

#include "kv/kv_manager.h"
#include "kv/test_support.h"

namespace tandem {
namespace {

// Computes `tokens` and leaves them cached on both tiers.
void cache_on_both(KvManager& manager, const std::vector<TokenId>& tokens) {
  SequenceKv kv;
  const std::vector<BlockHash> hashes = hashes_of(tokens);
  const auto count = static_cast<int32_t>(tokens.size());
  manager.attach(kv, hashes, count);
  ASSERT_TRUE(manager.grow(kv, count));
  manager.register_computed(kv, hashes, count);
  ASSERT_TRUE(manager.begin_transfer(kv, count).has_value());
  manager.copied(kv);
  manager.commit_transfer(kv);
  manager.release(kv);
}

// Whatever is cached on the accelerator without a user goes.
void crowd_out(KvManager& manager) {
  SequenceKv crowd;
  ASSERT_TRUE(
      manager.grow(crowd, static_cast<int32_t>(manager.free_blocks()) * manager.block_tokens()));
  manager.release(crowd);
}

std::span<const BlockHash> head(const std::vector<BlockHash>& hashes, int32_t blocks) {
  return std::span(hashes).first(static_cast<size_t>(blocks));
}

TEST(KvFetch, WhatOnlyTheHostHoldsComesBackAsCachedBlocks) {
  KvManager manager(6, kBlock, PrefixCaching::kOn, 8);
  const std::vector<TokenId> tokens = tokens_from(1, 18);
  const std::vector<BlockHash> hashes = hashes_of(tokens);
  cache_on_both(manager, tokens);
  EXPECT_EQ(manager.match_on_host(hashes, 18).missing, 0);
  crowd_out(manager);
  const HostPrefix found = manager.match_on_host(hashes, 18);
  EXPECT_EQ(found.blocks, 4);
  EXPECT_EQ(found.missing, 4);
  EXPECT_EQ(found.to_copy, 4);
  auto fetch = manager.begin_fetch(head(hashes, found.blocks));
  ASSERT_TRUE(fetch.has_value());
  EXPECT_EQ(fetch->copies.size(), 4U);
  EXPECT_EQ(manager.free_blocks(), 2);
  EXPECT_EQ(manager.free_blocks(Tier::kHost), 4);  // nobody may evict what is read
  EXPECT_EQ(manager.match(hashes, 18).tokens, 0);  // not there yet
  expect_books(manager, {&fetch->there, &fetch->coming});
  manager.fetch_copied(*fetch);
  ASSERT_TRUE(manager.fetch_ready(*fetch));
  manager.end_fetch(*fetch);
  EXPECT_EQ(manager.free_blocks(), 6);
  EXPECT_EQ(manager.free_blocks(Tier::kHost), 8);
  EXPECT_EQ(manager.match(hashes, 18).tokens, 16);
  expect_books(manager, {});
}

TEST(KvFetch, AtLeastOneTokenIsLeftToCompute) {
  KvManager manager(4, kBlock, PrefixCaching::kOn, 8);
  const std::vector<TokenId> tokens = tokens_from(1, 12);
  cache_on_both(manager, tokens);
  crowd_out(manager);
  EXPECT_EQ(manager.match_on_host(hashes_of(tokens), 12).blocks, 2);
  EXPECT_EQ(manager.match_on_host(hashes_of(tokens), 13).blocks, 3);
  EXPECT_EQ(manager.match_on_host(hashes_of(tokens), 1).blocks, 0);
}

TEST(KvFetch, WhatIsThereIsHeldAndNotCopied) {
  KvManager manager(6, kBlock, PrefixCaching::kOn, 8);
  const std::vector<TokenId> tokens = tokens_from(1, 18);
  const std::vector<BlockHash> hashes = hashes_of(tokens);
  cache_on_both(manager, tokens);
  crowd_out(manager);
  SequenceKv again;  // its first two blocks are computed anew
  ASSERT_TRUE(manager.grow(again, 8));
  manager.register_computed(again, hashes, 8);
  HostPrefix found = manager.match_on_host(hashes, 18);
  EXPECT_EQ(found.missing, 2);
  EXPECT_EQ(found.in_use, 2);
  manager.release(again);
  found = manager.match_on_host(hashes, 18);
  EXPECT_EQ(found.in_use, 0);
  auto fetch = manager.begin_fetch(head(hashes, found.blocks));
  ASSERT_TRUE(fetch.has_value());
  EXPECT_EQ(fetch->copies.size(), 2U);
  EXPECT_EQ(manager.free_blocks(), 2);
  SequenceKv other;  // cannot evict any of it
  EXPECT_FALSE(manager.grow(other, 3 * kBlock));
  ASSERT_TRUE(manager.grow(other, 2 * kBlock));
  manager.fetch_copied(*fetch);
  manager.end_fetch(*fetch);
  EXPECT_EQ(manager.match(hashes, 18).tokens, 16);
  expect_books(manager, {&other});
  manager.release(other);
}

TEST(KvFetch, TwoThatWantTheSameBlocksCopyThemOnce) {
  KvManager manager(6, kBlock, PrefixCaching::kOn, 8);
  const std::vector<TokenId> tokens = tokens_from(1, 18);
  const std::vector<BlockHash> hashes = hashes_of(tokens);
  cache_on_both(manager, tokens);
  crowd_out(manager);
  auto first = manager.begin_fetch(head(hashes, 3));
  const HostPrefix found = manager.match_on_host(hashes, 18);
  EXPECT_EQ(found.missing, 4);
  EXPECT_EQ(found.to_copy, 1);
  auto second = manager.begin_fetch(head(hashes, 4));
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_EQ(second->copies.size(), 1U);
  manager.fetch_copied(*second);
  EXPECT_FALSE(manager.fetch_ready(*second));
  expect_books(manager, {&first->there, &first->coming, &second->there, &second->coming});
  manager.fetch_copied(*first);
  EXPECT_TRUE(manager.fetch_ready(*second));
  manager.end_fetch(*first);
  manager.end_fetch(*second);
  expect_books(manager, {});
}

TEST(KvFetch, WithoutRoomNothingIsTaken) {
  KvManager manager(6, kBlock, PrefixCaching::kOn, 8);
  const std::vector<TokenId> tokens = tokens_from(1, 18);
  const std::vector<BlockHash> hashes = hashes_of(tokens);
  cache_on_both(manager, tokens);
  SequenceKv other;
  ASSERT_TRUE(manager.grow(other, 3 * kBlock));
  const int32_t here = manager.match(hashes, 18).blocks;
  EXPECT_LT(here, 4);
  const HostPrefix found = manager.match_on_host(hashes, 18);
  EXPECT_EQ(found.missing, 4 - here);
  EXPECT_FALSE(manager.begin_fetch(head(hashes, 4)).has_value());
  EXPECT_EQ(manager.free_blocks(), 3);
  EXPECT_EQ(manager.free_blocks(Tier::kHost), 8);
  expect_books(manager, {&other});
  manager.release(other);
}

TEST(KvFetch, NothingIsFoundWithoutACacheOrASecondTier) {
  KvManager one_tier(6, kBlock, PrefixCaching::kOn);
  KvManager uncached(6, kBlock, PrefixCaching::kOff, 8);
  const std::vector<BlockHash> hashes = hashes_of(tokens_from(1, 18));
  EXPECT_EQ(one_tier.match_on_host(hashes, 18).blocks, 0);
  EXPECT_EQ(uncached.match_on_host(hashes, 18).blocks, 0);
}

// Fetches, sequences that come, move and go, in any order: the books hold, and a fetch that has
// ended made its prefix a match.
TEST(KvFetch, BooksHoldUnderRandomUse) {
  std::mt19937 random(5);
  KvManager manager(12, kBlock, PrefixCaching::kOn, 20);
  std::vector<SequenceKv> sequences;
  std::vector<std::pair<PrefixFetch, std::vector<BlockHash>>> fetches;
  int64_t fetched = 0;
  for (int step = 0; step < 4000; ++step) {
    const auto tokens = tokens_from(1 + static_cast<TokenId>(random() % 3) * 100,
                                    1 + static_cast<int>(random() % 24));
    const std::vector<BlockHash> hashes = hashes_of(tokens);
    const auto known = static_cast<int32_t>(tokens.size());
    if (random() % 3 == 0) {
      SequenceKv kv;
      manager.attach(kv, hashes, known);
      if (manager.grow(kv, known)) {
        manager.register_computed(kv, hashes, known);
        if (random() % 2 == 0 && manager.begin_transfer(kv, known).has_value()) {
          manager.copied(kv);
          if (manager.transfer_ready(kv)) {
            manager.commit_transfer(kv);
          } else {
            manager.abort_transfer(kv);
          }
        }
      }
      sequences.push_back(std::move(kv));
    }
    const HostPrefix found = manager.match_on_host(hashes, known);
    if (found.missing > 0 && random() % 2 == 0) {
      auto fetch = manager.begin_fetch(head(hashes, found.blocks));
      if (fetch.has_value()) {
        EXPECT_EQ(std::ssize(fetch->copies), found.to_copy);
        fetches.emplace_back(*std::move(fetch), hashes);
      }
    }
    if (!fetches.empty() && random() % 2 == 0) {  // copies end in their order
      manager.fetch_copied(fetches.front().first);
      ASSERT_TRUE(manager.fetch_ready(fetches.front().first));
      const auto held =
          fetches.front().first.coming.blocks() + fetches.front().first.there.blocks();
      manager.end_fetch(fetches.front().first);
      EXPECT_GE(manager.match(fetches.front().second, held * kBlock + 1).blocks, held);
      fetches.erase(fetches.begin());
      ++fetched;
    }
    if (sequences.size() > 2 && random() % 2 == 0) {
      const size_t gone = random() % sequences.size();
      manager.release(sequences[gone]);
      sequences.erase(sequences.begin() + static_cast<std::ptrdiff_t>(gone));
    }
    std::vector<const SequenceKv*> users;
    for (const SequenceKv& kv : sequences) {
      users.push_back(&kv);
    }
    for (const auto& [fetch, names] : fetches) {
      users.push_back(&fetch.there);
      users.push_back(&fetch.coming);
    }
    const Status books = manager.audit(users);
    ASSERT_TRUE(books.ok()) << "step " << step << ": " << books.error().message;
  }
  EXPECT_GT(fetched, 200);
  for (auto& [fetch, names] : fetches) {
    manager.fetch_copied(fetch);
    manager.end_fetch(fetch);
  }
  for (SequenceKv& kv : sequences) {
    manager.release(kv);
  }
  EXPECT_EQ(manager.free_blocks(), 12);
  EXPECT_EQ(manager.free_blocks(Tier::kHost), 20);
}

}  // namespace
}  // namespace tandem
