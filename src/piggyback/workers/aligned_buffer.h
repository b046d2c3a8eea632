// Memory of one owner that grows and never shrinks, 64-byte aligned; keeps no content when it
// grows. Throws std::bad_alloc when there is no memory, which a worker answers as a failed task.
// One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace tandem::piggyback {

class AlignedBuffer {
 public:
  void* require(int64_t bytes) {
    if (bytes > bytes_) {
      data_.reset();
      bytes_ = 0;
      data_.reset(static_cast<std::byte*>(
          ::operator new (static_cast<size_t>(bytes), std::align_val_t{kAlignment})));
      bytes_ = bytes;
    }
    return data_.get();
  }

  [[nodiscard]] const void* data() const { return data_.get(); }

 private:
  static constexpr size_t kAlignment = 64;
  struct Free {
    void operator()(std::byte* data) const {
      ::operator delete (data, std::align_val_t{kAlignment});
    }
  };
  std::unique_ptr<std::byte, Free> data_;
  int64_t bytes_ = 0;
};

}  // namespace tandem::piggyback
