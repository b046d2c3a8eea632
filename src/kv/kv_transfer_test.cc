#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "kv/kv_manager.h"
#include "kv/test_support.h"

namespace tandem {
namespace {

void move_now(KvManager& manager, SequenceKv& kv, int32_t tokens) {
  ASSERT_TRUE(manager.begin_transfer(kv, tokens).has_value());
  manager.copied(kv);
  manager.commit_transfer(kv);
}

TEST(KvTransfer, SourceBlocksAreFreeOnlyAtTheCommit) {
  KvManager manager(4, kBlock, PrefixCaching::kOff, 6);
  SequenceKv kv;
  ASSERT_TRUE(manager.grow(kv, 10));
  const auto pairs = manager.begin_transfer(kv, 10);
  ASSERT_TRUE(pairs.has_value());
  EXPECT_EQ(pairs->size(), 3U);
  EXPECT_EQ(manager.free_blocks(), 1);
  EXPECT_EQ(manager.free_blocks(Tier::kHost), 3);
  EXPECT_FALSE(manager.transfer_ready(kv));
  manager.copied(kv);
  EXPECT_TRUE(manager.transfer_ready(kv));
  EXPECT_EQ(kv.tier(), Tier::kAccelerator);
  manager.commit_transfer(kv);
  EXPECT_EQ(kv.tier(), Tier::kHost);
  EXPECT_EQ(kv.table()[0], (*pairs)[0].host);
  EXPECT_EQ(manager.free_blocks(), 4);
  ASSERT_TRUE(manager.grow(kv, 13));  // it grows where it is
  EXPECT_EQ(manager.free_blocks(Tier::kHost), 2);
  expect_books(manager, {&kv});
  manager.release(kv);
  EXPECT_EQ(manager.free_blocks(Tier::kHost), 6);
}

TEST(KvTransfer, WithoutRoomNothingChanges) {
  KvManager manager(4, kBlock, PrefixCaching::kOn, 2);
  SequenceKv kv = computed(manager, tokens_from(1, 10));
  EXPECT_EQ(manager.begin_transfer(kv, 10), std::nullopt);
  EXPECT_FALSE(kv.moving());
  EXPECT_EQ(manager.free_blocks(Tier::kHost), 2);
  expect_books(manager, {&kv});
  manager.release(kv);
}

TEST(KvTransfer, OneTierHasNoRoomForAnything) {
  KvManager manager(4, kBlock, PrefixCaching::kOn);
  SequenceKv kv = computed(manager, tokens_from(1, 3));
  EXPECT_EQ(manager.begin_transfer(kv, 3), std::nullopt);
  manager.release(kv);
}

TEST(KvTransfer, AnAbortedTransferGivesUpTheOtherTier) {
  KvManager manager(4, kBlock, PrefixCaching::kOn, 6);
  SequenceKv kv = computed(manager, tokens_from(1, 10));
  ASSERT_TRUE(manager.begin_transfer(kv, 10).has_value());
  manager.copied(kv);
  manager.abort_transfer(kv);
  EXPECT_EQ(kv.tier(), Tier::kAccelerator);
  EXPECT_EQ(kv.blocks(), 3);
  EXPECT_EQ(manager.free_blocks(Tier::kHost), 6);
  expect_books(manager, {&kv});
  manager.release(kv);
}

TEST(KvTransfer, ASharedBlockIsCopiedOnceAndAPartialOneByEach) {
  KvManager manager(8, kBlock, PrefixCaching::kOff, 8);
  SequenceKv parent;
  ASSERT_TRUE(manager.grow(parent, 10));
  SequenceKv child = manager.fork(parent, 10);
  const auto first = manager.begin_transfer(parent, 10);
  const auto second = manager.begin_transfer(child, 10);
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_EQ(first->size(), 3U);
  EXPECT_EQ(second->size(), 1U);
  manager.copied(child);
  EXPECT_FALSE(manager.transfer_ready(child));  // what the parent's copy brings is not there yet
  manager.copied(parent);
  EXPECT_TRUE(manager.transfer_ready(child));
  manager.commit_transfer(child);
  manager.commit_transfer(parent);
  EXPECT_EQ(manager.free_blocks(), 8);
  EXPECT_EQ(manager.free_blocks(Tier::kHost), 4);
  EXPECT_EQ(parent.table()[1], child.table()[1]);
  EXPECT_NE(parent.table()[2], child.table()[2]);
  EXPECT_EQ(manager.own_blocks(parent), 1);
  expect_books(manager, {&parent, &child});
  manager.release(parent);
  EXPECT_EQ(manager.own_blocks(child), 3);
  manager.release(child);
  EXPECT_EQ(manager.free_blocks(Tier::kHost), 8);
}

TEST(KvTransfer, AForkThatStaysMayWriteItsPartialBlockWithoutACopy) {
  KvManager manager(8, kBlock, PrefixCaching::kOff, 8);
  SequenceKv parent;
  ASSERT_TRUE(manager.grow(parent, 6));
  SequenceKv child = manager.fork(parent, 6);
  EXPECT_TRUE(manager.needs_copy(child, 6));
  move_now(manager, parent, 6);
  EXPECT_FALSE(manager.needs_copy(child, 6));
  EXPECT_FALSE(manager.needs_copy(parent, 6));
  expect_books(manager, {&parent, &child});
  manager.release(parent);
  manager.release(child);
}

TEST(KvTransfer, WhatMovedStaysCachedHereAndComesBackWithoutACopy) {
  KvManager manager(8, kBlock, PrefixCaching::kOn, 8);
  const std::vector<TokenId> tokens = tokens_from(1, 10);
  SequenceKv kv = computed(manager, tokens);
  move_now(manager, kv, 10);
  EXPECT_EQ(manager.free_blocks(), 8);
  EXPECT_EQ(manager.cached_free_blocks(), 2);
  EXPECT_EQ(manager.match(hashes_of(tokens), 10).tokens, 8);
  const auto back = manager.begin_transfer(kv, 10);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->size(), 1U);  // the partial one only
  manager.copied(kv);
  manager.commit_transfer(kv);
  EXPECT_EQ(kv.tier(), Tier::kAccelerator);
  expect_books(manager, {&kv});
  manager.release(kv);
  EXPECT_EQ(manager.free_blocks(), 8);
  EXPECT_EQ(manager.free_blocks(Tier::kHost), 8);
}

TEST(KvTransfer, AHostOnlyPrefixIsComputedAnewAndThenCachedOnBothTiers) {
  KvManager manager(3, kBlock, PrefixCaching::kOn, 8);
  const std::vector<TokenId> tokens = tokens_from(1, 9);
  SequenceKv kv = computed(manager, tokens);
  move_now(manager, kv, 9);
  SequenceKv other;
  ASSERT_TRUE(manager.grow(other, 12));  // evicts what was left here
  manager.release(other);
  EXPECT_EQ(manager.match(hashes_of(tokens), 9).tokens, 0);
  SequenceKv again = computed(manager, tokens);
  EXPECT_EQ(manager.match(hashes_of(tokens), 9).tokens, 8);
  const auto pairs = manager.begin_transfer(again, 9);  // shares the host's blocks
  ASSERT_TRUE(pairs.has_value());
  EXPECT_EQ(pairs->size(), 1U);
  manager.copied(again);
  manager.abort_transfer(again);
  expect_books(manager, {&kv, &again});
  manager.release(kv);
  manager.release(again);
}

TEST(KvTransfer, BlocksOnTheirWayBackAreNoPrefixForOthersYet) {
  KvManager manager(8, kBlock, PrefixCaching::kOn, 8);
  const std::vector<TokenId> tokens = tokens_from(1, 9);
  SequenceKv kv = computed(manager, tokens);
  move_now(manager, kv, 9);
  SequenceKv other;
  ASSERT_TRUE(manager.grow(other, 32));
  manager.release(other);
  ASSERT_EQ(manager.begin_transfer(kv, 9)->size(), 3U);
  EXPECT_EQ(manager.match(hashes_of(tokens), 9).tokens, 0);
  manager.copied(kv);
  EXPECT_EQ(manager.match(hashes_of(tokens), 9).tokens, 8);
  manager.commit_transfer(kv);
  manager.release(kv);
}

TEST(KvTransfer, OwnBlocksAreExactAlsoWhenANewerSequenceSharesAPrefix) {
  KvManager manager(8, kBlock, PrefixCaching::kOn, 8);
  SequenceKv older = computed(manager, tokens_from(1, 10));
  EXPECT_EQ(manager.own_blocks(older), 3);
  SequenceKv newer = computed(manager, tokens_from(1, 10));
  EXPECT_EQ(manager.own_blocks(older), 1);
  EXPECT_EQ(manager.own_blocks(newer), 1);
  manager.release(older);
  EXPECT_EQ(manager.own_blocks(newer), 3);
  manager.release(newer);
}

TEST(KvTransferDeathTest, ReleasingOrWritingWhileItMovesIsABug) {
  KvManager manager(4, kBlock, PrefixCaching::kOff, 4);
  SequenceKv kv;
  ASSERT_TRUE(manager.grow(kv, 6));
  ASSERT_TRUE(manager.begin_transfer(kv, 6).has_value());
  EXPECT_DEATH(manager.release(kv), "while it moves");
  EXPECT_DEATH((void)manager.grow(kv, 9), "while it moves");
  EXPECT_DEATH(manager.commit_transfer(kv), "not done");
  EXPECT_DEATH(manager.abort_transfer(kv), "still under way");
  manager.copied(kv);
  manager.abort_transfer(kv);
  manager.release(kv);
}

// A memory behind the books: every block holds tokens, copies take place when they are told done,
// in any order. What a sequence's table leads to must always be its own tokens.
class Memory {
 public:
  Memory(int64_t accelerator, int64_t host)
      : slots_{std::vector<TokenId>(static_cast<size_t>(accelerator * kBlock), -1),
               std::vector<TokenId>(static_cast<size_t>(host * kBlock), -1)} {}
  TokenId& at(Tier tier, BlockId block, int32_t slot) {
    return slots_[static_cast<size_t>(tier)].at(static_cast<size_t>(raw(block) * kBlock + slot));
  }
  TokenId& at(const SequenceKv& kv, int32_t position) {
    return at(kv.tier(), kv.table()[static_cast<size_t>(position / kBlock)], position % kBlock);
  }
  void copy(Tier from, BlockId source, Tier to, BlockId target) {
    for (int32_t slot = 0; slot < kBlock; ++slot) {
      at(to, target, slot) = at(from, source, slot);
    }
  }

 private:
  std::array<std::vector<TokenId>, kTiers> slots_;
};

struct Live {
  SequenceKv kv;
  std::vector<TokenId> tokens;
  std::vector<TierTransfer::Pair> pairs;
  bool copying = false;
};

class RandomTransfers {
 public:
  explicit RandomTransfers(uint64_t seed)
      : random_(seed),
        accelerator_(2 + static_cast<int64_t>(random_() % 24)),
        host_(static_cast<int64_t>(random_() % 24)),
        manager_(accelerator_, kBlock,
                 random_() % 4 == 0 ? PrefixCaching::kOff : PrefixCaching::kOn, host_),
        memory_(accelerator_, host_) {}

  void run(int rounds) {
    for (int round = 0; round < rounds && !::testing::Test::HasFatalFailure(); ++round) {
      act();
      check();
    }
    while (!live_.empty()) {
      end(0);
    }
    check();
    EXPECT_EQ(manager_.free_blocks(), accelerator_);
    EXPECT_EQ(manager_.free_blocks(Tier::kHost), host_);
  }

 private:
  void act() {
    const auto action = random_() % 7;
    if (action == 0 && live_.size() < 12) {
      start();
      return;
    }
    if (live_.empty()) {
      return;
    }
    const size_t index = random_() % live_.size();
    Live& one = *live_[index];
    if (action == 1) {
      end(index);
    } else if (action == 2 && live_.size() < 12 && !one.kv.moving()) {
      auto child = std::make_unique<Live>();
      child->kv = manager_.fork(one.kv, static_cast<int32_t>(one.tokens.size()));
      child->tokens = one.tokens;
      live_.push_back(std::move(child));
    } else if (action == 3 && !one.kv.moving()) {
      append(one);
    } else if (action == 4 && !one.kv.moving()) {
      if (auto pairs = manager_.begin_transfer(one.kv, static_cast<int32_t>(one.tokens.size()))) {
        one.pairs = std::move(*pairs);
        one.copying = true;
      }
    } else if (action >= 5 && one.kv.moving()) {
      settle(one);
    }
  }

  void start() {
    auto next = std::make_unique<Live>();
    next->tokens =
        tokens_from(static_cast<TokenId>(random_() % 3), 1 + static_cast<int>(random_() % 20));
    const auto known = static_cast<int32_t>(next->tokens.size());
    const std::vector<BlockHash> hashes = hashes_of(next->tokens);
    const int32_t cached = manager_.attach(next->kv, hashes, known).tokens;
    if (!manager_.grow(next->kv, known)) {
      manager_.release(next->kv);
      return;
    }
    for (int32_t position = cached; position < known; ++position) {
      memory_.at(next->kv, position) = next->tokens[static_cast<size_t>(position)];
    }
    manager_.register_computed(next->kv, hashes, known);
    live_.push_back(std::move(next));
  }

  void append(Live& one) {
    const auto position = static_cast<int32_t>(one.tokens.size());
    if (manager_.needs_copy(one.kv, position)) {
      const auto copy = manager_.make_writable(one.kv, position);
      if (!copy.has_value()) {
        return;
      }
      memory_.copy(one.kv.tier(), copy->source, one.kv.tier(), copy->target);
    }
    if (manager_.grow(one.kv, position + 1)) {
      one.tokens.push_back(static_cast<TokenId>(random_() % 3));
      memory_.at(one.kv, position) = one.tokens.back();
      manager_.register_computed(one.kv, hashes_of(one.tokens), position + 1);
    }
  }

  void finish_copy(Live& one) {
    const Tier from = one.kv.tier();
    for (const TierTransfer::Pair& pair : one.pairs) {
      memory_.copy(from, from == Tier::kAccelerator ? pair.device : pair.host, other_tier(from),
                   from == Tier::kAccelerator ? pair.host : pair.device);
    }
    manager_.copied(one.kv);
    one.copying = false;
  }

  void settle(Live& one) {
    if (one.copying) {
      finish_copy(one);
    } else if (random_() % 4 == 0) {
      manager_.abort_transfer(one.kv);
    } else if (manager_.transfer_ready(one.kv)) {
      manager_.commit_transfer(one.kv);
    }
  }

  void end(size_t index) {
    Live& one = *live_[index];
    if (one.kv.moving()) {
      if (one.copying) {
        finish_copy(one);
      }
      manager_.abort_transfer(one.kv);
    }
    manager_.release(one.kv);
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  void check() {
    std::vector<const SequenceKv*> users;
    for (const auto& one : live_) {
      users.push_back(&one->kv);
      for (size_t position = 0; position < one->tokens.size(); ++position) {
        ASSERT_EQ(memory_.at(one->kv, static_cast<int32_t>(position)), one->tokens[position]);
      }
    }
    const Status books = manager_.audit(users);
    ASSERT_TRUE(books.ok()) << books.error().message;
  }

  std::mt19937_64 random_;
  int64_t accelerator_;
  int64_t host_;
  KvManager manager_;
  Memory memory_;
  std::vector<std::unique_ptr<Live>> live_;
};

TEST(KvTransfer, RandomTrafficOverTwoTiersNeverBreaksTheBooksOrTheContents) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    RandomTransfers(seed).run(800);
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
}

}  // namespace
}  // namespace tandem
