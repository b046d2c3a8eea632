// Normally distributed random values for made-up weights: the same for a seed and name on every
// run, whatever the threads. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/element_type.h"

namespace tandem::model {

inline constexpr int64_t kRandomChunkElements = int64_t{1} << 20;

struct Normal {
  float mean = 0.0F;
  float deviation = 1.0F;
};

// Values come from 4096 equally likely levels, so that making them keeps up with writing them.
class RandomTensor {
 public:
  RandomTensor(uint64_t seed, std::string_view name, Normal distribution, ElementType type);

  // Fills `out` with the elements from chunk * kRandomChunkElements on; out.size() is a multiple of
  // the element size and at most a chunk.
  void fill_chunk(int64_t chunk, std::span<std::byte> out) const;

 private:
  uint64_t seed_;
  ElementType type_;
  std::vector<uint32_t> wide_levels_;    // bits of fp32
  std::vector<uint16_t> narrow_levels_;  // bits of bf16 or fp16
};

}  // namespace tandem::model
