// A run of zero-filled pages from the kernel, 2 MiB-aligned, on huge pages where the kernel grants
// them. Owns them; nothing is touched until used. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace tandem::device {

inline constexpr int64_t kHugePageBytes = int64_t{2} << 20;

class Pages {
 public:
  Pages() = default;
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages();

  // nullopt when the kernel refuses. bytes >= 0; zero bytes give an address all the same.
  static std::optional<Pages> map(int64_t bytes);

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  void unmap();
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  int64_t mapped_bytes_ = 0;
};

// Workspace of one thread: grows, never shrinks, keeps no content when it grows.
class Scratch {
 public:
  // 64-byte aligned; stops the process when there is no memory for it.
  void* require(int64_t bytes) {
    if (bytes > pages_.bytes()) [[unlikely]] {
      grow(bytes);
    }
    return pages_.data();
  }

 private:
  void grow(int64_t bytes);
  Pages pages_;
};

}  // namespace tandem::device
