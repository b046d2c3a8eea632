#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include <set>

namespace tandem {
namespace {

TEST(BlockPool, HandsOutEveryBlockOnceAndThenSaysFull) {
  BlockPool pool(5);
  std::set<BlockId> seen;
  for (int i = 0; i < 5; ++i) {
    seen.insert(*pool.take());
  }
  EXPECT_EQ(seen.size(), 5U);
  EXPECT_EQ(pool.take(), std::nullopt);
  EXPECT_EQ(pool.free_blocks(), 0);
}

TEST(BlockPool, TheBlockFreedLastComesFirst) {
  BlockPool pool(3);
  const BlockId a = *pool.take();
  const BlockId b = *pool.take();
  pool.give_back(a);
  pool.give_back(b);
  EXPECT_EQ(*pool.take(), b);
}

TEST(BlockPoolDeathTest, GivingBackTwiceStopsTheProcess) {
  BlockPool pool(2);
  const BlockId a = *pool.take();
  pool.give_back(a);
  EXPECT_DEATH(pool.give_back(a), "not in use");
}

TEST(BlockPool, ARetiredBlockComesBackOnlyWhenItIsRestored) {
  BlockPool pool(2);
  const BlockId block = *pool.take();
  pool.retire(block);
  pool.retire(block);
  EXPECT_EQ(pool.blocks_out_of_use(), 0) << "its user still has it";
  pool.give_back(block);
  EXPECT_EQ(pool.free_blocks(), 1);
  EXPECT_EQ(pool.blocks_out_of_use(), 1);
  EXPECT_NE(*pool.take(), block);
  pool.restore(block);
  EXPECT_FALSE(pool.take().has_value()) << "it was retired twice";
  pool.restore(block);
  EXPECT_EQ(pool.blocks_out_of_use(), 0);
  EXPECT_EQ(*pool.take(), block);
}

TEST(BlockPool, ARestoredBlockThatIsStillUsedIsGivenBackAsEver) {
  BlockPool pool(1);
  const BlockId block = *pool.take();
  pool.retire(block);
  pool.restore(block);
  pool.give_back(block);
  EXPECT_EQ(pool.free_blocks(), 1);
}

}  // namespace
}  // namespace tandem
