// A set of row numbers with fast search for runs of consecutive ones. Bookkeeping only. Allocates
// when made, never after. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "piggyback/core/hop_types.h"

namespace tandem::piggyback {

class RowSet {
 public:
  explicit RowSet(int32_t rows);  // empty

  // Not in the set.
  void insert(int32_t row) {
    CHECK(row >= 0 && row < rows_ && !contains(row), "row {} of {}", row, rows_);
    words_[word_of(row)] |= bit(row);
    ++size_;
  }
  void erase(const RowRun& run);  // all in the set
  [[nodiscard]] bool contains(int32_t row) const { return (words_[word_of(row)] & bit(row)) != 0; }
  [[nodiscard]] int32_t size() const { return size_; }

  // The first run of members that begins at `from` or later, cut to `most` rows; rows = 0: none.
  [[nodiscard]] RowRun run_from(int32_t from, int32_t most) const;

 private:
  static constexpr int32_t kWordBits = 64;
  static uint64_t bit(int32_t row) {
    return uint64_t{1} << (static_cast<uint32_t>(row) % kWordBits);
  }
  static size_t word_of(int32_t row) { return static_cast<uint32_t>(row) / kWordBits; }
  [[nodiscard]] int32_t next(int32_t from, uint64_t flip) const;

  int32_t rows_ = 0;
  int32_t size_ = 0;
  std::vector<uint64_t> words_;
};

// Which hop rows are free. Gives consecutive ones where it can, so that a group's rows travel in
// one copy: goes round (next fit), so what was freed together is found together again.
class RowAllocator {
 public:
  explicit RowAllocator(int32_t rows);  // all free

  // A run of at most `want` >= 1 free rows, now taken: as long as asked where there is one, else
  // the longest there is; rows = 0 when none is free.
  RowRun take(int32_t want);
  void give_back(int32_t row) { free_.insert(row); }
  [[nodiscard]] int32_t free_rows() const { return free_.size(); }
  [[nodiscard]] bool is_free(int32_t row) const { return free_.contains(row); }

 private:
  RowSet free_;
  int32_t rows_ = 0;
  int32_t cursor_ = 0;
};

// The ring that visitors leave through: reserved and released in the same order, because the copies
// out of it finish in the order in which they were queued.
class ExitRing {
 public:
  explicit ExitRing(int32_t rows) : rows_(rows) {}

  // Needs free_rows() > 0.
  int32_t reserve();
  // `row` must be the one reserved longest ago.
  void release(int32_t row) {
    CHECK(used_ > 0 && row == oldest_, "ring row {} is released, {} of {} are in use from {} on",
          row, used_, rows_, oldest_);
    oldest_ = oldest_ + 1 < rows_ ? oldest_ + 1 : 0;
    --used_;
  }
  [[nodiscard]] int32_t free_rows() const { return rows_ - used_; }
  [[nodiscard]] int32_t oldest() const { return oldest_; }

 private:
  int32_t rows_ = 0;
  int32_t oldest_ = 0;
  int32_t used_ = 0;
};

}  // namespace tandem::piggyback
