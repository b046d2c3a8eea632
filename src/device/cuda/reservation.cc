#include "device/cuda/reservation.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace tandem::device::cuda {
namespace {

// An empty piece takes room too, so that every piece has an address of its own.
int64_t rounded(int64_t bytes) {
  constexpr int64_t kUnit = Reservation::kAlignment;
  return std::max<int64_t>((bytes + kUnit - 1) / kUnit, 1) * kUnit;
}

std::byte* aligned(std::byte* begin) {
  constexpr auto kUnit = static_cast<uintptr_t>(Reservation::kAlignment);
  return begin + (kUnit - reinterpret_cast<uintptr_t>(begin) % kUnit) % kUnit;
}

}  // namespace

Reservation::Reservation(std::byte* begin, int64_t capacity)
    : begin_(aligned(begin)), capacity_(capacity) {
  free_.emplace(0, room_for(capacity) - kAlignment);  // less what aligning may have cost
}

std::optional<std::byte*> Reservation::take(int64_t bytes) {
  const int64_t room = rounded(bytes);
  const std::lock_guard lock(mutex_);
  if (bytes > capacity_ - used_) {
    return std::nullopt;
  }
  const auto range = std::find_if(free_.begin(), free_.end(),
                                  [room](const auto& each) { return each.second >= room; });
  if (range == free_.end()) {
    return std::nullopt;
  }
  const auto [offset, length] = *range;
  free_.erase(range);
  used_ += bytes;
  if (length > room) {
    free_.emplace(offset + room, length - room);
  }
  return begin_ + offset;
}

void Reservation::give_back(std::byte* begin, int64_t bytes) {
  const int64_t room = rounded(bytes);
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
  const auto [range, added] = free_.emplace(begin - begin_, room);
  CHECK(added, "memory given back twice");
  if (const auto next = std::next(range);
      next != free_.end() && next->first == range->first + range->second) {
    range->second += next->second;
    free_.erase(next);
  }
  if (range != free_.begin()) {
    const auto before = std::prev(range);
    if (before->first + before->second == range->first) {
      before->second += range->second;
      free_.erase(range);
    }
  }
}

int64_t Reservation::left() const {
  const std::lock_guard lock(mutex_);
  return capacity_ - used_;
}

}  // namespace tandem::device::cuda
