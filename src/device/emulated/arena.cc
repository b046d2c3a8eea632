#include "device/emulated/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/units.h"

namespace tandem::device {
namespace {

// Addresses beside the capacity: for the rounding of many small pieces, and for the holes that
// pieces of changing sizes leave. Addresses cost nothing.
constexpr int64_t kSpareAddressBytes = int64_t{4} << 30;
constexpr int kPoison = 0xff;

int64_t piece_span(int64_t bytes) {
  return (std::max<int64_t>(bytes, 1) + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
}

// Pages that nobody has touched hold no memory, and must not be given any by their end.
void poison_touched_pages(std::byte* data, int64_t bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  std::array<unsigned char, 512> resident{};
  const int64_t step = page * static_cast<int64_t>(resident.size());
  for (int64_t begin = 0; begin < bytes; begin += step) {
    const int64_t length = std::min(step, bytes - begin);
    const bool known = mincore(data + begin, static_cast<size_t>(length), resident.data()) == 0;
    for (int64_t at = 0; at < length; at += page) {
      if (!known || (resident[static_cast<size_t>(at / page)] & 1U) != 0) {
        std::memset(data + begin + at, kPoison, static_cast<size_t>(std::min(page, length - at)));
      }
    }
  }
}

}  // namespace

class Arena::Piece final : public Memory {
 public:
  Piece(std::shared_ptr<Arena> arena, int64_t offset, int64_t bytes)
      : arena_(std::move(arena)), offset_(offset), bytes_(bytes) {}
  ~Piece() override { arena_->give_back(offset_, bytes_); }
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;

  [[nodiscard]] std::byte* data() const override { return arena_->pages_.data() + offset_; }
  [[nodiscard]] int64_t bytes() const override { return bytes_; }

 private:
  const std::shared_ptr<Arena> arena_;
  const int64_t offset_;
  const int64_t bytes_;
};

Arena::Arena(const ArenaName& name, int64_t capacity_bytes, Pages pages, PagesCome pages_come)
    : name_(name),
      capacity_bytes_(capacity_bytes),
      pages_(std::move(pages)),
      pages_come_(pages_come) {
  free_.emplace(0, pages_.bytes());
}

Result<std::shared_ptr<Arena>> Arena::create(const ArenaName& name, int64_t capacity_bytes,
                                             PagesCome pages_come) {
  if (capacity_bytes < 1) {
    return invalid_argument(fmt::format("{} memory of {} bytes: must be at least 1; set {}",
                                        name.tier, capacity_bytes, name.flag),
                            name.flag);
  }
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 4;
  std::optional<Pages> pages;
  if (capacity_bytes <= kMost) {
    pages = Pages::map(piece_span(capacity_bytes) * 2 + kSpareAddressBytes);
  }
  if (!pages) {
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("cannot reserve addresses for {} of {} memory; use a smaller {}",
                             format_bytes(capacity_bytes), name.tier, name.flag),
                 name.flag};
  }
  return std::shared_ptr<Arena>(new Arena(name, capacity_bytes, std::move(*pages), pages_come));
}

Error Arena::full(int64_t bytes, int64_t left) const {
  return {ErrorCode::kResourceExhausted,
          fmt::format("not enough {} memory: {} ({} bytes) asked, {} ({} bytes) of {} left; use a "
                      "smaller model or KV pool, or raise {}",
                      name_.tier, format_bytes(bytes), bytes, format_bytes(left), left,
                      format_bytes(capacity_bytes_), name_.flag),
          name_.flag};
}

Result<std::unique_ptr<Memory>> Arena::allocate(int64_t bytes) {
  if (bytes < 0) {
    return invalid_argument(fmt::format("cannot allocate {} bytes", bytes));
  }
  const std::lock_guard lock(mutex_);
  const int64_t left = capacity_bytes_ - used_bytes_;
  if (bytes > left) {
    return full(bytes, left);
  }
  const int64_t span = piece_span(bytes);
  const auto hole =
      std::find_if(free_.begin(), free_.end(), [&](const auto& one) { return one.second >= span; });
  if (hole == free_.end()) {
    return full(bytes, left);  // only after thousands of small pieces
  }
  const auto [offset, length] = *hole;
  free_.erase(hole);
  if (length > span) {
    free_.emplace(offset + span, length - span);
  }
  // Drops what an earlier piece left: the pages come back as zeros. A small piece takes small
  // pages.
  std::byte* data = pages_.data() + offset;
  CHECK(madvise(data, static_cast<size_t>(span), MADV_DONTNEED) == 0, "zeroing {} bytes", span);
  (void)madvise(data, static_cast<size_t>(span),
                bytes < kHugePageBytes ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
  if (pages_come_ == PagesCome::kAtOnce) {
    // Advice: a kernel that does not know it brings the pages at their first use.
    (void)madvise(data, static_cast<size_t>(span), MADV_POPULATE_WRITE);
  }
  used_bytes_ += bytes;
  return std::unique_ptr<Memory>(std::make_unique<Piece>(shared_from_this(), offset, bytes));
}

void Arena::give_back(int64_t offset, int64_t bytes) {
  poison_touched_pages(pages_.data() + offset, bytes);
  const std::lock_guard lock(mutex_);
  used_bytes_ -= bytes;
  auto here = free_.emplace(offset, piece_span(bytes)).first;
  const auto next = std::next(here);
  if (next != free_.end() && here->first + here->second == next->first) {
    here->second += next->second;
    free_.erase(next);
  }
  if (here != free_.begin()) {
    const auto before = std::prev(here);
    if (before->first + before->second == here->first) {
      before->second += here->second;
      free_.erase(here);
    }
  }
}

}  // namespace tandem::device
