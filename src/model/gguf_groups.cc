#include "model/gguf_groups.h"

#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "gguf/dequantise.h"
#include "model/fp16_groups.h"
#include "model/weight_formats.h"

namespace tandem::model {
namespace {

using gguf::BlockType;
using kernels::QuantizedGroup;

constexpr int32_t kHalf = kQuantizedGroup / 2;

// Value i lies in the low half of byte i, value 16 + i in its high half.
void read_halves(const uint8_t* bytes, int32_t offset, int8_t* values) {
  for (int32_t i = 0; i < kHalf; ++i) {
    values[i] = static_cast<int8_t>((bytes[i] & 15) - offset);
    values[kHalf + i] = static_cast<int8_t>((bytes[i] >> 4) - offset);
  }
}

void q8_0_group(const uint8_t* block, QuantizedGroup& group) {
  std::memcpy(&group.scale, block, 2);
  std::memcpy(group.values, block + 2, kQuantizedGroup);
}

void q4_0_group(const uint8_t* block, QuantizedGroup& group) {
  std::memcpy(&group.scale, block, 2);
  read_halves(block + 2, 8, group.values);
}

void q4_1_group(const uint8_t* block, QuantizedGroup& group) {
  std::memcpy(&group.scale, block, 2);
  std::memcpy(&group.minimum, block + 2, 2);
  read_halves(block + 4, 0, group.values);
}

void q5_0_group(const uint8_t* block, QuantizedGroup& group) {
  std::memcpy(&group.scale, block, 2);
  uint32_t high = 0;
  std::memcpy(&high, block + 2, sizeof high);
  read_halves(block + 6, 16, group.values);
  for (int32_t i = 0; i < kQuantizedGroup; ++i) {
    group.values[i] =
        static_cast<int8_t>(group.values[i] + static_cast<int8_t>(high >> i & 1U) * 16);
  }
}

// Eight groups: d, dmin, 12 bytes with scale and minimum of 6 bits each, then 128 bytes, of which
// each 32 hold two runs, the first in the low halves.
void q4_k_groups(const uint8_t* block, QuantizedGroup* groups) {
  uint16_t halves[2];
  std::memcpy(halves, block, sizeof halves);
  const float d = f16_to_f32(halves[0]);
  const float d_minimum = f16_to_f32(halves[1]);
  const uint8_t* packed = block + 4;
  for (int32_t run = 0; run < 8; ++run) {
    const int32_t at = run % 4;
    const int32_t scale = run < 4 ? packed[at] & 63 : (packed[8 + at] & 15) | packed[at] >> 6 << 4;
    const int32_t minimum =
        run < 4 ? packed[4 + at] & 63 : packed[8 + at] >> 4 | packed[4 + at] >> 6 << 4;
    groups[run].scale = half_bits(d * static_cast<float>(scale));
    groups[run].minimum = half_bits(-(d_minimum * static_cast<float>(minimum)));
    const uint8_t* values = block + 16 + run / 2 * 32;
    const int32_t shift = run % 2 * 4;
    for (int32_t i = 0; i < kQuantizedGroup; ++i) {
      groups[run].values[i] = static_cast<int8_t>(values[i] >> shift & 15);
    }
  }
}

template <auto kRead>
void each_group(const std::byte* blocks, int64_t block_bytes, std::span<QuantizedGroup> out) {
  const auto* block = reinterpret_cast<const uint8_t*>(blocks);
  for (QuantizedGroup& group : out) {
    group.minimum = 0;
    kRead(block, group);
    block += block_bytes;
  }
}

void round_groups(BlockType type, const std::byte* blocks, std::span<QuantizedGroup> out) {
  const gguf::BlockShape shape = gguf::block_shape(type);
  const auto groups = static_cast<size_t>(shape.elements / kQuantizedGroup);
  for (size_t begin = 0; begin < out.size(); begin += groups, blocks += shape.bytes) {
    float values[8][kQuantizedGroup];
    gguf::dequantise(type, blocks,
                     std::span(&values[0][0], groups * static_cast<size_t>(kQuantizedGroup)));
    for (size_t i = 0; i < groups; ++i) {
      out[begin + i] = int8_group(values[i]);
    }
  }
}

}  // namespace

void gguf_groups(BlockType type, const std::byte* blocks, Quantization kind,
                 std::span<QuantizedGroup> out) {
  const gguf::BlockShape shape = gguf::block_shape(type);
  const auto groups = static_cast<size_t>(shape.elements / kQuantizedGroup);
  CHECK(groups > 0 && out.size() % groups == 0, "{} groups of {}", out.size(),
        gguf::type_name(type));
  const Quantization own = stored_quantization(type);
  CHECK(kind == own || kind == Quantization::kInt8, "{} as {}", gguf::type_name(type),
        quantization_name(kind));
  if (kind != own) {
    return round_groups(type, blocks, out);
  }
  switch (type) {
    case BlockType::kQ8_0:
      return each_group<q8_0_group>(blocks, shape.bytes, out);
    case BlockType::kQ5_0:
      return each_group<q5_0_group>(blocks, shape.bytes, out);
    case BlockType::kQ4_0:
      return each_group<q4_0_group>(blocks, shape.bytes, out);
    case BlockType::kQ4_1:
      return each_group<q4_1_group>(blocks, shape.bytes, out);
    case BlockType::kQ4_K:
      for (size_t begin = 0; begin < out.size(); begin += groups, blocks += shape.bytes) {
        q4_k_groups(reinterpret_cast<const uint8_t*>(blocks), &out[begin]);
      }
      return;
    default:
      return round_groups(type, blocks, out);
  }
}

}  // namespace tandem::model
