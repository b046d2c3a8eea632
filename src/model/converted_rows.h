// For weight sources that convert the contents of their files: a pool of buffers with the converted
// rows that the loader still reads, and the offsets of tensors as delivered.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"

namespace tandem::model {

// Any thread.
class ConvertedRows {
 public:
  struct Buffer {
    int64_t capacity = 0;
    std::unique_ptr<std::byte[]> bytes;
  };

  // For at least `bytes`.
  [[nodiscard]] Buffer take(int64_t bytes);
  // `buffer` holds [begin, end) of a file as delivered. It replaces a buffer with the same `begin`.
  void put(int32_t file, int64_t begin, int64_t end, Buffer buffer);
  // Needs a buffer that holds `offset`.
  [[nodiscard]] const std::byte* at(int32_t file, int64_t offset) const;
  // Recycles the buffers that lie in [begin, end).
  void release(int32_t file, int64_t begin, int64_t end);

 private:
  struct Loaded {
    int64_t end = 0;
    Buffer buffer;
  };
  mutable std::mutex mutex_;                              // guards the other members
  std::map<std::pair<int32_t, int64_t>, Loaded> loaded_;  // by file and begin
  std::vector<Buffer> spare_;
};

// The offset of a tensor that is delivered behind a tensor that ends at `end`.
constexpr int64_t next_tensor_begin(int64_t end) {
  constexpr int64_t kTensorAlignment = 64;
  return (end + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

// The tensor of `placed`, in the order of `entry.begin`, that has `offset`. Needs such a tensor.
template <class Placed>
const Placed& placed_at(const std::vector<std::unique_ptr<Placed>>& placed, int64_t offset) {
  const auto after =
      std::upper_bound(placed.begin(), placed.end(), offset,
                       [](int64_t value, const auto& other) { return value < other->entry.begin; });
  CHECK(after != placed.begin() && offset < (*(after - 1))->entry.end, "offset {} is in no tensor",
        offset);
  return **(after - 1);
}

}  // namespace tandem::model
