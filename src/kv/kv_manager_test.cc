#include "kv/kv_manager.h"

#include <gtest/gtest.h>

#include <random>

#include "kv/test_support.h"

namespace tandem {
namespace {

TEST(KvManager, GrowingPastThePoolChangesNothing) {
  KvManager manager(3, kBlock, PrefixCaching::kOn);
  SequenceKv kv;
  EXPECT_TRUE(manager.grow(kv, 8));
  EXPECT_FALSE(manager.grow(kv, 17));
  EXPECT_EQ(kv.blocks(), 2);
  EXPECT_EQ(manager.free_blocks(), 1);
  manager.release(kv);
  EXPECT_EQ(manager.free_blocks(), 3);
}

TEST(KvManager, AReleasedPromptIsFoundAgainAndLeavesOneTokenToCompute) {
  KvManager manager(8, kBlock, PrefixCaching::kOn);
  const std::vector<TokenId> tokens = tokens_from(1, 8);
  SequenceKv first = computed(manager, tokens);
  const BlockId head = first.table()[0];
  manager.release(first);
  EXPECT_EQ(manager.free_blocks(), 8);  // cached blocks count as free

  SequenceKv second;
  const PrefixMatch match = manager.attach(second, hashes_of(tokens), 8);
  EXPECT_EQ(match.tokens, 4);  // not 8: the last token's logits must be computed
  EXPECT_EQ(match.free_blocks, 1);
  EXPECT_EQ(second.table()[0], head);
  EXPECT_EQ(manager.free_blocks(), 7);
  manager.release(second);
}

TEST(KvManager, TenantsShareNothing) {
  KvManager manager(8, kBlock, PrefixCaching::kOn);
  const std::vector<TokenId> tokens = tokens_from(1, 12);
  SequenceKv mine = computed(manager, tokens);
  EXPECT_EQ(manager.match(hashes_of(tokens), 12).tokens, 8);
  EXPECT_EQ(manager.match(hashes_of(tokens, "other"), 12).tokens, 0);
  manager.release(mine);
}

TEST(KvManager, TheLeastRecentlyUsedTailIsEvictedFirst) {
  KvManager manager(4, kBlock, PrefixCaching::kOn);
  const std::vector<TokenId> old_tokens = tokens_from(1, 8);
  const std::vector<TokenId> new_tokens = tokens_from(100, 8);
  SequenceKv a = computed(manager, old_tokens);
  manager.release(a);
  SequenceKv b = computed(manager, new_tokens);
  manager.release(b);

  SequenceKv c;
  ASSERT_TRUE(manager.grow(c, 4));  // the pool is full of cached blocks: one goes
  EXPECT_EQ(manager.match(hashes_of(old_tokens), 100).tokens, 4);
  EXPECT_EQ(manager.match(hashes_of(new_tokens), 100).tokens, 8);
  manager.release(c);
  EXPECT_TRUE(manager.audit({}).ok());
}

TEST(KvManager, ForksShareUntilOneWrites) {
  KvManager manager(8, kBlock, PrefixCaching::kOn);
  SequenceKv parent = computed(manager, tokens_from(1, 6));
  SequenceKv child = manager.fork(parent, 6);
  EXPECT_EQ(manager.free_blocks(), 6);
  EXPECT_TRUE(manager.needs_copy(child, 6));

  const std::optional<BlockCopy> copy = manager.make_writable(child, 6);
  ASSERT_TRUE(copy.has_value());
  EXPECT_EQ(copy->source, parent.table()[1]);
  EXPECT_EQ(copy->target, child.table()[1]);
  EXPECT_EQ(parent.table()[0], child.table()[0]);
  EXPECT_FALSE(manager.needs_copy(child, 6));
  EXPECT_FALSE(manager.needs_copy(parent, 6));
  manager.release(parent);
  manager.release(child);
  EXPECT_EQ(manager.free_blocks(), 8);
}

TEST(KvManager, CopyOnWriteWithoutAFreeBlockChangesNothing) {
  KvManager manager(2, kBlock, PrefixCaching::kOff);
  SequenceKv parent;
  ASSERT_TRUE(manager.grow(parent, 6));
  SequenceKv child = manager.fork(parent, 6);
  EXPECT_EQ(manager.make_writable(child, 6), std::nullopt);
  EXPECT_TRUE(manager.needs_copy(child, 6));
  manager.release(parent);
  EXPECT_FALSE(manager.needs_copy(child, 6));
  manager.release(child);
}

TEST(KvManager, WithoutCachingNothingIsFound) {
  KvManager manager(8, kBlock, PrefixCaching::kOff);
  const std::vector<TokenId> tokens = tokens_from(1, 12);
  SequenceKv kv = computed(manager, tokens);
  EXPECT_EQ(manager.match(hashes_of(tokens), 12).tokens, 0);
  manager.release(kv);
  EXPECT_EQ(manager.cached_free_blocks(), 0);
}

TEST(KvManager, TwoSequencesThatComputeTheSameBlockKeepOneCached) {
  KvManager manager(8, kBlock, PrefixCaching::kOn);
  const std::vector<TokenId> tokens = tokens_from(1, 4);
  const std::vector<BlockHash> hashes = hashes_of(tokens);
  SequenceKv a;
  SequenceKv b;
  ASSERT_TRUE(manager.grow(a, 4) && manager.grow(b, 4));
  manager.register_computed(a, hashes, 4);
  manager.register_computed(b, hashes, 4);
  manager.release(a);
  manager.release(b);
  EXPECT_EQ(manager.cached_free_blocks(), 1);
  EXPECT_EQ(manager.free_blocks(), 8);
  EXPECT_TRUE(manager.audit({}).ok());
}

// Random traffic against the invariants: nothing leaks, nothing is used twice, cached content is
// what it says.
TEST(KvManager, RandomTrafficNeverBreaksTheBooks) {
  std::mt19937 random(11);
  KvManager manager(24, kBlock, PrefixCaching::kOn);
  struct Live {
    SequenceKv kv;
    std::vector<TokenId> tokens;
  };
  std::vector<Live> live;
  for (int round = 0; round < 4000; ++round) {
    const auto action = random() % 4;
    if (action == 0 && live.size() < 12) {
      Live next;
      next.tokens =
          tokens_from(static_cast<TokenId>(random() % 3), 1 + static_cast<int>(random() % 20));
      const int32_t known = static_cast<int32_t>(next.tokens.size());
      const std::vector<BlockHash> hashes = hashes_of(next.tokens);
      manager.attach(next.kv, hashes, known);
      if (manager.grow(next.kv, known)) {
        manager.register_computed(next.kv, hashes, known);
        live.push_back(std::move(next));
      } else {
        manager.release(next.kv);
      }
    } else if (action == 1 && !live.empty()) {
      const size_t index = random() % live.size();
      manager.release(live[index].kv);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(index));
    } else if (action == 2 && !live.empty() && live.size() < 12) {
      Live& parent = live[random() % live.size()];
      Live child{manager.fork(parent.kv, static_cast<int32_t>(parent.tokens.size())),
                 parent.tokens};
      live.push_back(std::move(child));
    } else if (action == 3 && !live.empty()) {
      Live& one = live[random() % live.size()];
      const int32_t position = static_cast<int32_t>(one.tokens.size());
      if (manager.needs_copy(one.kv, position) && !manager.make_writable(one.kv, position)) {
        continue;
      }
      if (manager.grow(one.kv, position + 1)) {
        one.tokens.push_back(static_cast<TokenId>(random() % 3));
        manager.register_computed(one.kv, hashes_of(one.tokens), position + 1);
      }
    }
    std::vector<const SequenceKv*> users;
    for (const Live& one : live) {
      users.push_back(&one.kv);
    }
    const Status books = manager.audit(users);
    ASSERT_TRUE(books.ok()) << books.error().message;
  }
  for (Live& one : live) {
    manager.release(one.kv);
  }
  EXPECT_EQ(manager.free_blocks(), 24);
}

}  // namespace
}  // namespace tandem
