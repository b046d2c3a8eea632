// Bytes that are part of a shared total for as long as this object holds them. They are added once
// and subtracted once, however the object moves. Threads: one owner at a time; the total is shared.
// The total must outlive the object.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace tandem {

class CountedBytes {
 public:
  explicit CountedBytes(std::atomic<int64_t>& total, int64_t bytes = 0) : total_(&total) {
    set(bytes);
  }
  ~CountedBytes() { set(0); }
  CountedBytes(CountedBytes&& other) noexcept
      : total_(other.total_), bytes_(std::exchange(other.bytes_, 0)) {}
  CountedBytes& operator=(CountedBytes&&) = delete;
  CountedBytes(const CountedBytes&) = delete;
  CountedBytes& operator=(const CountedBytes&) = delete;

  void set(int64_t bytes) {
    if (bytes != bytes_) {
      *total_ += bytes - bytes_;
      bytes_ = bytes;
    }
  }
  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  std::atomic<int64_t>* total_;
  int64_t bytes_ = 0;
};

}  // namespace tandem
