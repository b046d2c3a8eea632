#include "piggyback/core/row_set.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace tandem::piggyback {
namespace {

constexpr int32_t kWordBits = 64;
constexpr uint64_t kAllBits = ~uint64_t{0};

uint64_t bit(int32_t row) { return uint64_t{1} << (row % kWordBits); }
size_t word_of(int32_t row) { return static_cast<size_t>(row / kWordBits); }

}  // namespace

RowSet::RowSet(int32_t rows)
    : rows_(rows), words_(static_cast<size_t>((int64_t{rows} + kWordBits - 1) / kWordBits)) {
  CHECK(rows >= 1, "{} rows", rows);
}

void RowSet::insert(int32_t row) {
  CHECK(row >= 0 && row < rows_, "row {} of {}", row, rows_);
  CHECK(!contains(row), "row {} twice", row);
  words_[word_of(row)] |= bit(row);
  ++size_;
}

void RowSet::erase(int32_t row) {
  CHECK(row >= 0 && row < rows_, "row {} of {}", row, rows_);
  CHECK(contains(row), "row {} is not there", row);
  words_[word_of(row)] &= ~bit(row);
  --size_;
}

bool RowSet::contains(int32_t row) const { return (words_[word_of(row)] & bit(row)) != 0; }

// The first row >= from whose bit, flipped by `flip`, is set; rows_ when there is none.
int32_t RowSet::next(int32_t from, uint64_t flip) const {
  if (from >= rows_) {
    return rows_;
  }
  size_t word = word_of(from);
  uint64_t bits = (words_[word] ^ flip) & (kAllBits << (from % kWordBits));
  while (bits == 0) {
    if (++word == words_.size()) {
      return rows_;
    }
    bits = words_[word] ^ flip;
  }
  const auto row = static_cast<int32_t>(word) * kWordBits + std::countr_zero(bits);
  return std::min(row, rows_);
}

RowRun RowSet::run_from(int32_t from, int32_t most) const {
  const int32_t begin = next(from, 0);
  if (begin == rows_) {
    return {};
  }
  return {begin, std::min(next(begin + 1, kAllBits) - begin, most)};
}

RowAllocator::RowAllocator(int32_t rows) : free_(rows), rows_(rows) {
  for (int32_t row = 0; row < rows; ++row) {
    free_.insert(row);
  }
}

RowRun RowAllocator::take(int32_t want) {
  CHECK(want >= 1, "{} rows wanted", want);
  RowRun best;
  // From the cursor to the end, then from the start: a run across the cursor counts as two.
  for (const auto& [first, last] : {std::pair{cursor_, rows_}, std::pair{0, cursor_}}) {
    for (int32_t from = first; from < last && best.rows < want;) {
      const RowRun run = free_.run_from(from, want);
      if (run.rows == 0) {
        break;
      }
      if (run.rows > best.rows && run.begin < last) {
        best = run;
      }
      from = run.begin + run.rows;
    }
  }
  for (int32_t row = best.begin; row < best.begin + best.rows; ++row) {
    free_.erase(row);
  }
  if (best.rows > 0) {
    cursor_ = (best.begin + best.rows) % rows_;
  }
  return best;
}

int32_t ExitRing::reserve() {
  CHECK(used_ < rows_, "the ring of {} rows is full", rows_);
  const auto row = static_cast<int32_t>((int64_t{oldest_} + used_) % rows_);
  ++used_;
  return row;
}

void ExitRing::release(int32_t row) {
  CHECK(used_ > 0 && row == oldest_, "ring row {} is released, {} of {} are in use from {} on", row,
        used_, rows_, oldest_);
  oldest_ = (oldest_ + 1) % rows_;
  --used_;
}

}  // namespace tandem::piggyback
