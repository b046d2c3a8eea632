#include "piggyback/core/row_set.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace tandem::piggyback {
namespace {

constexpr uint64_t kAllBits = ~uint64_t{0};

}  // namespace

RowSet::RowSet(int32_t rows)
    : rows_(rows), words_(static_cast<size_t>((int64_t{rows} + kWordBits - 1) / kWordBits)) {
  CHECK(rows >= 1, "{} rows", rows);
}

void RowSet::erase(const RowRun& run) {
  CHECK(run.begin >= 0 && run.rows >= 0 && run.begin <= rows_ - run.rows, "rows {} + {} of {}",
        run.begin, run.rows, rows_);
  const int32_t end = run.begin + run.rows;
  for (int32_t row = run.begin; row < end;) {
    const int32_t first = row % kWordBits;
    const int32_t count = std::min(kWordBits - first, end - row);
    const uint64_t bits = (kAllBits >> (kWordBits - count)) << first;
    CHECK((words_[word_of(row)] & bits) == bits, "of rows {} to {} some are not there", row,
          row + count - 1);
    words_[word_of(row)] &= ~bits;
    row += count;
  }
  size_ -= run.rows;
}

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
  free_.erase(best);
  if (best.rows > 0) {
    cursor_ = (best.begin + best.rows) % rows_;
  }
  return best;
}

int32_t ExitRing::reserve() {
  CHECK(used_ < rows_, "the ring of {} rows is full", rows_);
  const int64_t row = int64_t{oldest_} + used_;
  ++used_;
  return static_cast<int32_t>(row < rows_ ? row : row - rows_);
}

}  // namespace tandem::piggyback
