#include "model/converted_rows.h"

#include <iterator>

namespace tandem::model {

ConvertedRows::Buffer ConvertedRows::take(int64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    for (Buffer& spare : spare_) {
      if (spare.capacity >= bytes) {
        Buffer taken = std::move(spare);
        spare = std::move(spare_.back());
        spare_.pop_back();
        return taken;
      }
    }
  }
  return {.capacity = bytes,
          .bytes = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes))};
}

void ConvertedRows::put(int32_t file, int64_t begin, int64_t end, Buffer buffer) {
  const std::lock_guard lock(mutex_);
  loaded_[{file, begin}] = {end, std::move(buffer)};
}

const std::byte* ConvertedRows::at(int32_t file, int64_t offset) const {
  const std::lock_guard lock(mutex_);
  const auto after = loaded_.upper_bound({file, offset});
  CHECK(after != loaded_.begin(), "offset {} of file {} is not loaded", offset, file);
  const auto& [key, loaded] = *std::prev(after);
  CHECK(key.first == file && offset < loaded.end, "offset {} of file {} is not loaded", offset,
        file);
  return loaded.buffer.bytes.get() + (offset - key.second);
}

void ConvertedRows::release(int32_t file, int64_t begin, int64_t end) {
  const std::lock_guard lock(mutex_);
  auto it = loaded_.lower_bound({file, begin});
  while (it != loaded_.end() && it->first.first == file && it->second.end <= end) {
    spare_.push_back(std::move(it->second.buffer));
    it = loaded_.erase(it);
  }
}

}  // namespace tandem::model
