#include "model/random_tensor.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/float16.h"

namespace tandem::model {
namespace {

constexpr int kLevelBits = 12;
constexpr size_t kLevels = size_t{1} << kLevelBits;

// The finaliser of splitmix64: every bit of the input moves every bit of the output.
constexpr uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}
constexpr uint64_t kStep = 0x9e3779b97f4a7c15U;

uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0;
  for (const char c : name) {
    hash = mix(hash + kStep + static_cast<unsigned char>(c));
  }
  return hash;
}

// x with P(normal <= x) = probability, by bisection; called once per level.
double normal_quantile(double probability) {
  double low = -8.0;
  double high = 8.0;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle * std::sqrt(0.5)) < probability ? low : high) = middle;
  }
  return (low + high) / 2;
}

const std::array<float, kLevels>& standard_normal_levels() {
  static const std::array<float, kLevels> kTable = [] {
    std::array<float, kLevels> table{};
    for (size_t i = 0; i < kLevels / 2; ++i) {
      const double x = normal_quantile((static_cast<double>(i) + 0.5) / kLevels);
      table[i] = static_cast<float>(x);
      table[kLevels - 1 - i] = static_cast<float>(-x);
    }
    return table;
  }();
  return kTable;
}

template <class Word>
void fill(uint64_t state, const std::vector<Word>& levels, std::span<std::byte> out) {
  constexpr size_t kPerDraw = 64 / kLevelBits;
  const size_t count = out.size() / sizeof(Word);
  std::array<Word, kPerDraw> values{};
  for (size_t i = 0; i < count; i += kPerDraw) {
    uint64_t draw = mix(state += kStep);
    for (Word& value : values) {
      value = levels[draw & (kLevels - 1)];
      draw >>= kLevelBits;
    }
    std::memcpy(out.data() + i * sizeof(Word), values.data(),
                std::min(kPerDraw, count - i) * sizeof(Word));
  }
}

}  // namespace

RandomTensor::RandomTensor(uint64_t seed, std::string_view name, Normal distribution,
                           ElementType type)
    : seed_(mix(seed + kStep) ^ hash_name(name)), type_(type) {
  for (const float level : standard_normal_levels()) {
    const float value = distribution.mean + distribution.deviation * level;
    if (type == ElementType::kF32) {
      wide_levels_.push_back(std::bit_cast<uint32_t>(value));
    } else {
      narrow_levels_.push_back(type == ElementType::kBF16 ? f32_to_bf16(value) : f32_to_f16(value));
    }
  }
}

void RandomTensor::fill_chunk(int64_t chunk, std::span<std::byte> out) const {
  CHECK(std::cmp_less_equal(out.size(), kRandomChunkElements * element_bytes(type_)),
        "a chunk of {} bytes", out.size());
  const uint64_t state = mix(seed_ + kStep * static_cast<uint64_t>(chunk));
  if (type_ == ElementType::kF32) {
    fill(state, wide_levels_, out);
  } else {
    fill(state, narrow_levels_, out);
  }
}

}  // namespace tandem::model
