// One piece of memory, taken once, out of which aligned pieces are handed out: first fit, and what
// is given back joins its neighbours. Only addresses: the memory itself is never touched.
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

  // `begin` is aligned to kAlignment.
  Reservation(std::byte* begin, int64_t bytes);

  // At most `bytes` rounded up to kAlignment of what is left; none: no range is long enough.
  std::optional<std::byte*> take(int64_t bytes);
  void give_back(std::byte* begin, int64_t bytes);
  [[nodiscard]] int64_t bytes() const { return bytes_; }
  [[nodiscard]] int64_t left() const;

 private:
  std::byte* const begin_;
  const int64_t bytes_;
  mutable std::mutex mutex_;         // guards what follows
  std::map<int64_t, int64_t> free_;  // begin -> length, apart from each other
};

}  // namespace tandem::device::cuda
