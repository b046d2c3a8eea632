#include "device/cpu/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "kernels/gemm.h"

namespace tandem::device {
Pages::Pages(Pages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)) {}

Pages& Pages::operator=(Pages&& other) noexcept {
  if (this != &other) {
    unmap();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    mapped_bytes_ = std::exchange(other.mapped_bytes_, 0);
  }
  return *this;
}

Pages::~Pages() { unmap(); }

void Pages::unmap() {
  if (data_ != nullptr) {
    munmap(data_, static_cast<size_t>(mapped_bytes_));
    data_ = nullptr;
  }
}

std::optional<Pages> Pages::map(int64_t bytes) {
  CHECK(bytes >= 0, "{} bytes", bytes);
  if (bytes > std::numeric_limits<int64_t>::max() / 2) {
    return std::nullopt;
  }
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t wanted = kernels::round_up(std::max<int64_t>(bytes, 1), page);
  const int64_t with_slack = wanted + kHugePageBytes;
  // No swap is set aside: the caller compares with what is available.
  void* raw = mmap(nullptr, static_cast<size_t>(with_slack), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) {
    return std::nullopt;
  }
  auto* start = static_cast<std::byte*>(raw);
  const auto address = reinterpret_cast<uintptr_t>(start);
  const int64_t head = kernels::round_up(static_cast<int64_t>(address), kHugePageBytes) -
                       static_cast<int64_t>(address);
  const int64_t tail = with_slack - head - wanted;
  if (head > 0) {
    munmap(start, static_cast<size_t>(head));
  }
  if (tail > 0) {
    munmap(start + head + wanted, static_cast<size_t>(tail));
  }
  Pages pages;
  pages.data_ = start + head;
  pages.bytes_ = bytes;
  pages.mapped_bytes_ = wanted;
  if (wanted >= kHugePageBytes) {
    // Advice: a kernel without huge pages serves small ones.
    (void)madvise(pages.data_, static_cast<size_t>(wanted), MADV_HUGEPAGE);
  }
  return pages;
}

void Scratch::grow(int64_t bytes) {
  constexpr int64_t kSmallest = int64_t{64} << 10;
  const int64_t wanted = std::max({bytes, kSmallest, pages_.bytes() * 2});
  auto pages = Pages::map(wanted);
  CHECK(pages.has_value(), "no memory for a thread's workspace of {} bytes", wanted);
  pages_ = std::move(*pages);
}

}  // namespace tandem::device
