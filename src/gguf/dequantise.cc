#include "gguf/dequantise.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "base/check.h"

namespace tandem::gguf {
namespace {

constexpr int32_t kBlock = 32;
constexpr int32_t kSuperBlock = 256;

float half_at(const uint8_t* at) {
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return f16_to_f32(bits);
}

// d, then 32 int8.
void q8_0(const uint8_t* block, float* out) {
  const float d = half_at(block);
  for (int32_t i = 0; i < kBlock; ++i) {
    out[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * d;
  }
}

// d, then 16 bytes: value i in the low half of byte i, value 16 + i in its high half.
void q4_0(const uint8_t* block, float* out) {
  const float d = half_at(block);
  for (int32_t i = 0; i < 16; ++i) {
    out[i] = static_cast<float>((block[2 + i] & 15) - 8) * d;
    out[16 + i] = static_cast<float>((block[2 + i] >> 4) - 8) * d;
  }
}

// d and m, then as q4_0.
void q4_1(const uint8_t* block, float* out) {
  const float d = half_at(block);
  const float m = half_at(block + 2);
  for (int32_t i = 0; i < 16; ++i) {
    out[i] = static_cast<float>(block[4 + i] & 15) * d + m;
    out[16 + i] = static_cast<float>(block[4 + i] >> 4) * d + m;
  }
}

// The 32 values of 5 bits: their fifth bits in a word, then as q4_0.
void five_bits(const uint8_t* bits, std::array<int32_t, kBlock>& values) {
  uint32_t high = 0;
  std::memcpy(&high, bits, sizeof high);
  const uint8_t* low = bits + 4;
  for (uint32_t i = 0; i < 16; ++i) {
    values[i] = static_cast<int32_t>((low[i] & 15U) | (high >> i & 1U) << 4);
    values[16 + i] = static_cast<int32_t>((low[i] >> 4U) | (high >> (16 + i) & 1U) << 4);
  }
}

void q5_0(const uint8_t* block, float* out) {
  const float d = half_at(block);
  std::array<int32_t, kBlock> values{};
  five_bits(block + 2, values);
  for (size_t i = 0; i < kBlock; ++i) {
    out[i] = static_cast<float>(values[i] - 16) * d;
  }
}

void q5_1(const uint8_t* block, float* out) {
  const float d = half_at(block);
  const float m = half_at(block + 2);
  std::array<int32_t, kBlock> values{};
  five_bits(block + 4, values);
  for (size_t i = 0; i < kBlock; ++i) {
    out[i] = static_cast<float>(values[i]) * d + m;
  }
}

// Scale and minimum of the eight runs of 32 values of a super-block: 6 bits each, in 12 bytes.
struct RunScales {
  std::array<float, 8> scale{};
  std::array<float, 8> minimum{};
};

RunScales run_scales(const uint8_t* block) {
  const float d = half_at(block);
  const float d_minimum = half_at(block + 2);
  const uint8_t* packed = block + 4;
  RunScales scales;
  for (size_t i = 0; i < 4; ++i) {
    scales.scale[i] = d * static_cast<float>(packed[i] & 63);
    scales.minimum[i] = d_minimum * static_cast<float>(packed[4 + i] & 63);
    scales.scale[4 + i] = d * static_cast<float>((packed[8 + i] & 15) | (packed[i] >> 6) << 4);
    scales.minimum[4 + i] =
        d_minimum * static_cast<float>((packed[8 + i] >> 4) | (packed[4 + i] >> 6) << 4);
  }
  return scales;
}

// d, dmin, 12 bytes of scales, then 128 bytes: each 32 of them hold two runs, the first in the low
// halves.
void q4_k(const uint8_t* block, float* out) {
  const RunScales scales = run_scales(block);
  const uint8_t* values = block + 16;
  for (size_t run = 0; run < 8; run += 2, values += 32, out += 64) {
    for (size_t i = 0; i < 32; ++i) {
      out[i] = scales.scale[run] * static_cast<float>(values[i] & 15) - scales.minimum[run];
    }
    for (size_t i = 0; i < 32; ++i) {
      out[32 + i] =
          scales.scale[run + 1] * static_cast<float>(values[i] >> 4) - scales.minimum[run + 1];
    }
  }
}

// As q4_k, with 32 bytes before the 128 that hold the fifth bits: bit r of byte i is of run r.
void q5_k(const uint8_t* block, float* out) {
  const RunScales scales = run_scales(block);
  const uint8_t* high = block + 16;
  const uint8_t* low = block + 48;
  for (size_t run = 0; run < 8; run += 2, low += 32, out += 64) {
    for (size_t i = 0; i < 32; ++i) {
      const int32_t value = (low[i] & 15) | (high[i] >> run & 1) << 4;
      out[i] = scales.scale[run] * static_cast<float>(value) - scales.minimum[run];
    }
    for (size_t i = 0; i < 32; ++i) {
      const int32_t value = (low[i] >> 4) | (high[i] >> (run + 1) & 1) << 4;
      out[32 + i] = scales.scale[run + 1] * static_cast<float>(value) - scales.minimum[run + 1];
    }
  }
}

// 128 bytes of low halves, 64 of two high bits each, 16 int8 scales of 16 values each, d. Each half
// of the super-block has four runs of 32 values, which share 64 bytes and 32 bytes.
void q6_k(const uint8_t* block, float* out) {
  const float d = half_at(block + 208);
  for (size_t half = 0; half < 2; ++half, out += 128) {
    const uint8_t* low = block + half * 64;
    const uint8_t* high = block + 128 + half * 32;
    const uint8_t* scales = block + 192 + half * 8;
    for (size_t run = 0; run < 4; ++run) {
      const uint8_t* run_low = low + run % 2 * 32;
      const uint32_t low_shift = run / 2 * 4;
      const uint32_t high_shift = static_cast<uint32_t>(run) * 2;
      for (size_t part = 0; part < 2; ++part) {
        const float scale = d * static_cast<float>(static_cast<int8_t>(scales[run * 2 + part]));
        for (size_t i = part * 16; i < part * 16 + 16; ++i) {
          const uint32_t value = (run_low[i] >> low_shift & 15U) | (high[i] >> high_shift & 3U)
                                                                       << 4;
          out[run * 32 + i] = scale * static_cast<float>(static_cast<int32_t>(value) - 32);
        }
      }
    }
  }
}

void f16(const uint8_t* block, float* out) { *out = half_at(block); }

void bf16(const uint8_t* block, float* out) {
  uint16_t bits = 0;
  std::memcpy(&bits, block, sizeof bits);
  *out = bf16_to_f32(bits);
}

void f32(const uint8_t* block, float* out) { std::memcpy(out, block, sizeof *out); }

// Runs `decode` on block after block and hands each block's values to `write`.
template <auto kDecode, int32_t kElements, int32_t kBytes, class T>
void each_block(const std::byte* blocks, std::span<T> out) {
  const auto* block = reinterpret_cast<const uint8_t*>(blocks);
  CHECK(out.size() % kElements == 0, "{} values in blocks of {}", out.size(), kElements);
  for (size_t begin = 0; begin < out.size(); begin += kElements, block += kBytes) {
    if constexpr (std::is_same_v<T, float>) {
      kDecode(block, out.data() + begin);
    } else {
      std::array<float, kElements> values;
      kDecode(block, values.data());
      for (size_t i = 0; i < kElements; ++i) {
        out[begin + i] = f32_to_bf16(values[i]);
      }
    }
  }
}

template <class T>
void dequantise_as(BlockType type, const std::byte* blocks, std::span<T> out) {
  switch (type) {
    case BlockType::kF32:
      return each_block<f32, 1, 4>(blocks, out);
    case BlockType::kF16:
      return each_block<f16, 1, 2>(blocks, out);
    case BlockType::kBF16:
      return each_block<bf16, 1, 2>(blocks, out);
    case BlockType::kQ8_0:
      return each_block<q8_0, kBlock, 34>(blocks, out);
    case BlockType::kQ4_0:
      return each_block<q4_0, kBlock, 18>(blocks, out);
    case BlockType::kQ4_1:
      return each_block<q4_1, kBlock, 20>(blocks, out);
    case BlockType::kQ5_0:
      return each_block<q5_0, kBlock, 22>(blocks, out);
    case BlockType::kQ5_1:
      return each_block<q5_1, kBlock, 24>(blocks, out);
    case BlockType::kQ4_K:
      return each_block<q4_k, kSuperBlock, 144>(blocks, out);
    case BlockType::kQ5_K:
      return each_block<q5_k, kSuperBlock, 176>(blocks, out);
    case BlockType::kQ6_K:
      return each_block<q6_k, kSuperBlock, 210>(blocks, out);
  }
}

}  // namespace

void dequantise(BlockType type, const std::byte* blocks, std::span<float> out) {
  dequantise_as(type, blocks, out);
}

void dequantise(BlockType type, const std::byte* blocks, std::span<BFloat16> out) {
  dequantise_as(type, blocks, out);
}

}  // namespace tandem::gguf
