#include "model/finite.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace tandem::model {
namespace {

// Magnitudes of floats order like their bits, so one maximum per block finds them all.
template <class Word>
std::optional<int64_t> find_at_least(const std::byte* data, int64_t elements, Word limit) {
  constexpr int64_t kBlock = 256;  // a fixed count: the loops below become vector code
  constexpr Word kMagnitude = std::numeric_limits<Word>::max();
  const auto magnitude = [&](int64_t i) {
    Word bits = 0;
    std::memcpy(&bits, data + i * static_cast<int64_t>(sizeof(Word)), sizeof(Word));
    return static_cast<Word>(bits & kMagnitude);
  };
  for (int64_t begin = 0; begin < elements; begin += kBlock) {
    const int64_t count = std::min(kBlock, elements - begin);
    Word largest = 0;
    if (count == kBlock) {
      for (int64_t i = 0; i < kBlock; ++i) {
        largest = std::max(largest, magnitude(begin + i));
      }
    } else {
      for (int64_t i = 0; i < count; ++i) {
        largest = std::max(largest, magnitude(begin + i));
      }
    }
    if (largest >= limit) {
      for (int64_t i = begin;; ++i) {
        if (magnitude(i) >= limit) {
          return i;
        }
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> find_not_finite(const std::byte* data, int64_t elements, ElementType type,
                                       ElementType target) {
  // Signed words: the baseline vector instructions compare only those.
  switch (type) {
    case ElementType::kF32:
      // From half a step above the largest bf16, rounding gives infinity.
      return find_at_least<int32_t>(data, elements,
                                    target == ElementType::kBF16 ? 0x7f7f8000 : 0x7f800000);
    case ElementType::kBF16:
      return find_at_least<int16_t>(data, elements, 0x7f80);
    case ElementType::kF16:
      return find_at_least<int16_t>(data, elements, 0x7c00);
  }
  return std::nullopt;
}

}  // namespace tandem::model
