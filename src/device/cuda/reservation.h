// One piece of memory, taken once, out of which aligned pieces are handed out: first fit, and what
// is given back joins its neighbours. What is asked for counts against the capacity, the rounding
// does not: room_for() has enough for kPieces of them. Only addresses: the memory itself is never
// touched.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace tandem::device::cuda {

class Reservation {
 public:
  static constexpr int64_t kAlignment = int64_t{2} << 20;

  // Weights are a piece for each layer, the executor's memory some twenty.
  static constexpr int64_t kPieces = 128;
  // Bytes to take for pieces of so many together.
  static constexpr int64_t room_for(int64_t capacity) {
    return (capacity + kAlignment - 1) / kAlignment * kAlignment + (kPieces + 1) * kAlignment;
  }

  // `begin`: room_for(capacity) bytes, of any alignment.
  Reservation(std::byte* begin, int64_t capacity);

  // None: it does not fit.
  std::optional<std::byte*> take(int64_t bytes);
  void give_back(std::byte* begin, int64_t bytes);
  [[nodiscard]] int64_t capacity() const { return capacity_; }
  [[nodiscard]] int64_t left() const;

 private:
  std::byte* const begin_;
  const int64_t capacity_;
  mutable std::mutex mutex_;  // guards what follows
  int64_t used_ = 0;
  std::map<int64_t, int64_t> free_;  // begin -> length, apart from each other
};

}  // namespace tandem::device::cuda
