#include "piggyback/core/row_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace tandem::piggyback {
namespace {

TEST(RowSet, FindsRunsAcrossWordsAndCutsThem) {
  RowSet set(200);
  for (int32_t row = 60; row < 140; ++row) {
    set.insert(row);
  }
  set.insert(199);
  EXPECT_EQ(set.run_from(0, 200), (RowRun{60, 80}));
  EXPECT_EQ(set.run_from(64, 10), (RowRun{64, 10}));
  EXPECT_EQ(set.run_from(140, 200), (RowRun{199, 1}));
  set.erase({100, 1});
  EXPECT_EQ(set.run_from(0, 200), (RowRun{60, 40}));
  EXPECT_EQ(set.run_from(100, 200), (RowRun{101, 39}));
  set.erase({199, 1});
  EXPECT_EQ(set.run_from(140, 200).rows, 0);
  EXPECT_EQ(set.size(), 79);
}

TEST(RowSet, ErasesRunsAcrossWords) {
  for (const RowRun run :
       {RowRun{0, 300}, RowRun{63, 2}, RowRun{64, 64}, RowRun{1, 190}, RowRun{70, 0}}) {
    RowSet set(300);
    for (int32_t row = 0; row < 300; ++row) {
      set.insert(row);
    }
    set.erase(run);
    EXPECT_EQ(set.size(), 300 - run.rows);
    for (int32_t row = 0; row < 300; ++row) {
      EXPECT_EQ(set.contains(row), row < run.begin || row >= run.begin + run.rows) << row;
    }
  }
}

TEST(RowSetDeathTest, ARowThatIsNotThereCannotBeErased) {
  RowSet set(100);
  set.insert(7);
  EXPECT_DEATH(set.erase({7, 2}), "some are not there");
}

TEST(RowAllocator, GivesOneRunWhereThereIsOne) {
  RowAllocator rows(100);
  EXPECT_EQ(rows.take(30), (RowRun{0, 30}));
  EXPECT_EQ(rows.take(30), (RowRun{30, 30}));
  for (int32_t row = 0; row < 30; row += 2) {
    rows.give_back(row);
  }
  EXPECT_EQ(rows.take(20), (RowRun{60, 20}));
  EXPECT_EQ(rows.take(20), (RowRun{80, 20}));
  EXPECT_EQ(rows.take(20), (RowRun{0, 1})) << "only single ones are left";
  EXPECT_EQ(rows.free_rows(), 14);
}

TEST(RowAllocator, GivesTheLongestRunWhenNoneIsLongEnough) {
  RowAllocator rows(64);
  EXPECT_EQ(rows.take(64).rows, 64);
  for (const int32_t row : {3, 10, 11, 12, 40, 41}) {
    rows.give_back(row);
  }
  EXPECT_EQ(rows.take(5), (RowRun{10, 3}));
  EXPECT_EQ(rows.take(2), (RowRun{40, 2}));
  EXPECT_EQ(rows.take(2), (RowRun{3, 1}));
  EXPECT_EQ(rows.take(1).rows, 0);
}

TEST(RowAllocator, NeverGivesARowTwiceUnderRandomUse) {
  std::mt19937_64 random(5);
  for (const int32_t count : {1, 2, 63, 64, 65, 300}) {
    RowAllocator rows(count);
    std::set<int32_t> taken;
    for (int step = 0; step < 3000; ++step) {
      if (random() % 2 == 0) {
        const auto want = static_cast<int32_t>(random() % 20 + 1);
        const RowRun run = rows.take(want);
        ASSERT_LE(run.rows, want);
        ASSERT_EQ(run.rows == 0, static_cast<int32_t>(taken.size()) == count);
        for (int32_t row = run.begin; row < run.begin + run.rows; ++row) {
          ASSERT_TRUE(row < count && taken.insert(row).second);
        }
      } else if (!taken.empty()) {
        const auto at = std::next(taken.begin(), static_cast<int64_t>(random() % taken.size()));
        rows.give_back(*at);
        taken.erase(at);
      }
      ASSERT_EQ(rows.free_rows(), count - static_cast<int32_t>(taken.size()));
    }
  }
}

TEST(ExitRing, IsFirstInFirstOut) {
  ExitRing ring(3);
  EXPECT_EQ(ring.reserve(), 0);
  EXPECT_EQ(ring.reserve(), 1);
  EXPECT_EQ(ring.reserve(), 2);
  EXPECT_EQ(ring.free_rows(), 0);
  ring.release(0);
  EXPECT_EQ(ring.reserve(), 0) << "the ring goes round";
  EXPECT_DEATH(ring.release(2), "ring row 2 is released");
  ring.release(1);
  ring.release(2);
  ring.release(0);
  EXPECT_EQ(ring.free_rows(), 3);
}

}  // namespace
}  // namespace tandem::piggyback
