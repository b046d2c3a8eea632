#include "model/packed_values.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "model/fp16_groups.h"

namespace tandem::model {
namespace {

using kernels::QuantizedGroup;
using Layout = PackedLayer::Layout;

constexpr int64_t kBlockRows = 64;
constexpr int64_t kBlockColumns = kQuantizedGroup;
constexpr int64_t kAwqPerWord = 8;
// Row i of eight lies in the four bits from kAwqShift[i] on.
constexpr int32_t kAwqShift[kAwqPerWord] = {0, 16, 4, 20, 8, 24, 12, 28};

// Rows [row, row + rows) x columns [column, column + columns) of a layer.
struct Block {
  int64_t row;
  int64_t rows;
  int64_t column;
  int64_t columns;
};
using Integers = int16_t[kBlockRows][kBlockColumns];

uint32_t word_at(const std::byte* words, int64_t index) {
  uint32_t word = 0;
  std::memcpy(&word, words + index * 4, sizeof word);
  return word;
}

template <int kBits>
void spread(uint32_t word, int64_t count, int16_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<int16_t>(word >> (kBits * i) & ((1U << kBits) - 1));
  }
}

// Words of consecutive columns: that of row r and columns from c * kPerWord on is number
// c * column_step + r * row_step.
template <int kBits>
void read_words(const PackedLayer& layer, const Block& block, int64_t column_step, int64_t row_step,
                Integers& out) {
  constexpr int64_t kPerWord = 32 / kBits;
  for (int64_t at = 0; at < block.columns; at += kPerWord) {
    const std::byte* words =
        layer.values.data +
        ((block.column + at) / kPerWord * column_step + block.row * row_step) * 4;
    const int64_t count = std::min(kPerWord, block.columns - at);
    for (int64_t row = 0; row < block.rows; ++row) {
      if (count == kPerWord) {
        spread<kBits>(word_at(words, row * row_step), kPerWord, out[row] + at);
      } else {
        spread<kBits>(word_at(words, row * row_step), count, out[row] + at);
      }
    }
  }
}

void read_row_words(const PackedLayer& layer, const Block& block, Integers& out) {
  const int64_t words = layer.rows / kAwqPerWord;
  for (int64_t at = 0; at < block.columns; ++at) {
    const std::byte* line = layer.values.data + (block.column + at) * words * 4;
    for (int64_t row = 0; row < block.rows; ++row) {
      const int64_t result = block.row + row;
      out[row][at] = static_cast<int16_t>(
          word_at(line, result / kAwqPerWord) >> kAwqShift[result % kAwqPerWord] & 15U);
    }
  }
}

void read_bytes(const PackedLayer& layer, const Block& block, Integers& out) {
  for (int64_t row = 0; row < block.rows; ++row) {
    const std::byte* bytes = layer.values.data + (block.row + row) * layer.columns + block.column;
    for (int64_t at = 0; at < block.columns; ++at) {
      out[row][at] = int16_t{std::to_integer<int8_t>(bytes[at])};
    }
  }
}

void read_block(const PackedLayer& layer, const Block& block, Integers& out) {
  const int64_t words = (layer.columns + layer.per_word() - 1) / layer.per_word();
  switch (layer.layout) {
    case Layout::kColumnWords:
      return layer.scheme.bits == 4 ? read_words<4>(layer, block, layer.rows, 1, out)
                                    : read_words<8>(layer, block, layer.rows, 1, out);
    case Layout::kRowWords:
      return read_row_words(layer, block, out);
    case Layout::kPacked:
      return layer.scheme.bits == 4 ? read_words<4>(layer, block, 1, words, out)
                                    : read_words<8>(layer, block, 1, words, out);
    case Layout::kBytes:
      return read_bytes(layer, block, out);
  }
}

float scale_at(const PackedLayer& layer, int64_t row, int64_t group) {
  const bool by_group = layer.layout == Layout::kColumnWords || layer.layout == Layout::kRowWords;
  const int64_t index = by_group ? group * layer.rows + row : row * layer.groups + group;
  const ElementType type = *layer.scales.entry->type;
  if (type == ElementType::kF32) {
    float value = 0.0F;
    std::memcpy(&value, layer.scales.data + index * 4, sizeof value);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, layer.scales.data + index * 2, sizeof bits);
  return type == ElementType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

// What a group of columns has in common, for each row of a block.
struct Terms {
  float scale[kBlockRows];
  int32_t zero[kBlockRows];
};

void read_terms(const PackedLayer& layer, const Block& block, int64_t group, Terms& terms) {
  for (int64_t i = 0; i < block.rows; ++i) {
    terms.scale[i] = scale_at(layer, block.row + i, group);
    terms.zero[i] = packed_zero(layer, block.row + i, group);
  }
}

// Calls use(block, terms, integers) for the whole of rows [first, last), in blocks of which none
// has columns of two groups. The layer is not reordered.
template <class Use>
void each_block(const PackedLayer& layer, int64_t first, int64_t last, const Use& use) {
  const int64_t group_columns = layer.columns / layer.groups;
  Terms terms;
  Integers integers;
  for (int64_t row = first; row < last; row += kBlockRows) {
    Block block{row, std::min(kBlockRows, last - row), 0, 0};
    for (; block.column < layer.columns; block.column += kBlockColumns) {
      block.columns = std::min(kBlockColumns, layer.columns - block.column);
      if (block.column % group_columns == 0) {
        read_terms(layer, block, block.column / group_columns, terms);
      }
      read_block(layer, block, integers);
      use(block, terms, integers);
    }
  }
}

using Numbers = float[kBlockRows][kBlockColumns];

// Calls use(block, numbers) for the whole of rows [first, last) of a layer that is reordered.
template <class Use>
void each_reordered_block(const PackedLayer& layer, int64_t first, int64_t last, const Use& use) {
  std::vector<Terms> terms(static_cast<size_t>(layer.groups));
  Integers integers;
  Numbers numbers;
  for (int64_t row = first; row < last; row += kBlockRows) {
    Block block{row, std::min(kBlockRows, last - row), 0, 0};
    for (int64_t group = 0; group < layer.groups; ++group) {
      read_terms(layer, block, group, terms[static_cast<size_t>(group)]);
    }
    for (; block.column < layer.columns; block.column += kBlockColumns) {
      block.columns = std::min(kBlockColumns, layer.columns - block.column);
      read_block(layer, block, integers);
      for (int64_t at = 0; at < block.columns; ++at) {
        const Terms& own = terms[static_cast<size_t>(layer.group_of(block.column + at))];
        for (int64_t i = 0; i < block.rows; ++i) {
          numbers[i][at] = own.scale[i] * static_cast<float>(integers[i][at] - own.zero[i]);
        }
      }
      use(block, numbers);
    }
  }
}

// The same for every layer.
template <class Use>
void each_numbers(const PackedLayer& layer, int64_t first, int64_t last, const Use& use) {
  if (layer.reordered) {
    return each_reordered_block(layer, first, last, use);
  }
  Numbers numbers;
  each_block(layer, first, last, [&](const Block& block, const Terms& terms, const Integers& q) {
    for (int64_t i = 0; i < block.rows; ++i) {
      for (int64_t at = 0; at < block.columns; ++at) {
        numbers[i][at] = terms.scale[i] * static_cast<float>(q[i][at] - terms.zero[i]);
      }
    }
    use(block, numbers);
  });
}

QuantizedGroup int4_group(const int16_t* q, float scale, int32_t zero) {
  QuantizedGroup group{.scale = half_bits(scale),
                       .minimum = half_bits(-static_cast<float>(zero) * scale)};
  for (int32_t i = 0; i < kQuantizedGroup; ++i) {
    group.values[i] = static_cast<int8_t>(q[i]);
  }
  return group;
}

// Of int8 and int4-symmetric, which holds every q - zero of 4 symmetric bits.
QuantizedGroup centred_group(const int16_t* q, float scale, int32_t zero) {
  const auto [min, max] = std::minmax_element(q, q + kQuantizedGroup);
  if (*min - zero < INT8_MIN || *max - zero > INT8_MAX) {
    float values[kQuantizedGroup];
    for (int32_t i = 0; i < kQuantizedGroup; ++i) {
      values[i] = scale * static_cast<float>(q[i] - zero);
    }
    return int8_group(values);
  }
  QuantizedGroup group{.scale = half_bits(scale)};
  for (int32_t i = 0; i < kQuantizedGroup; ++i) {
    group.values[i] = static_cast<int8_t>(q[i] - zero);
  }
  return group;
}

template <class Number, class Round>
void write_numbers(const PackedLayer& layer, int64_t first, int64_t last, std::byte* out,
                   const Round& round) {
  each_numbers(layer, first, last, [&](const Block& block, const Numbers& numbers) {
    for (int64_t i = 0; i < block.rows; ++i) {
      Number rounded[kBlockColumns];
      for (int64_t column = 0; column < block.columns; ++column) {
        rounded[column] = round(numbers[i][column]);
      }
      const int64_t at = (block.row - first + i) * layer.columns + block.column;
      std::memcpy(out + at * int64_t{sizeof(Number)}, rounded,
                  static_cast<size_t>(block.columns) * sizeof(Number));
    }
  });
}

}  // namespace

int32_t packed_zero(const PackedLayer& layer, int64_t row, int64_t group) {
  const int32_t bits = layer.scheme.bits;
  if (layer.zeros.entry == nullptr) {
    return layer.layout == Layout::kBytes ? 0 : 1 << (bits - 1);
  }
  const std::byte* data = layer.zeros.data;
  const int64_t per_word = layer.per_word();
  const uint32_t mask = (1U << bits) - 1;
  auto shift = static_cast<int32_t>(row % per_word) * bits;
  switch (layer.layout) {
    case Layout::kBytes:
      return std::to_integer<int8_t>(data[row * layer.groups + group]);
    case Layout::kPacked:
      return static_cast<int32_t>(word_at(data, row / per_word * layer.groups + group) >> shift &
                                  mask);
    case Layout::kRowWords:
      shift = kAwqShift[row % per_word];
      break;
    case Layout::kColumnWords:
      break;
  }
  // The library that writes zero points minus one subtracts from whole words.
  const uint32_t one_each = bits == 4 ? 0x11111111U : 0x01010101U;
  const uint32_t word = word_at(data, group * (layer.rows / per_word) + row / per_word) +
                        (layer.zeros_minus_one ? one_each : 0U);
  return static_cast<int32_t>(word >> shift & mask);
}

void packed_groups(const PackedLayer& layer, Quantization kind, int64_t first, int64_t last,
                   QuantizedGroup* out) {
  CHECK(
      layer.kind() != Quantization::kNone && (kind == layer.kind() || kind == Quantization::kInt8),
      "a layer of {} bits and {} columns as {}", layer.scheme.bits, layer.columns,
      quantization_name(kind));
  const int64_t row_groups = layer.columns / kQuantizedGroup;
  const auto place = [&](const Block& block, int64_t i) -> QuantizedGroup& {
    return out[(block.row - first + i) * row_groups + block.column / kQuantizedGroup];
  };
  if (layer.reordered) {
    each_reordered_block(layer, first, last, [&](const Block& block, const Numbers& numbers) {
      for (int64_t i = 0; i < block.rows; ++i) {
        place(block, i) = int8_group(numbers[i]);
      }
    });
    return;
  }
  const auto make = kind == Quantization::kInt4 ? int4_group : centred_group;
  each_block(layer, first, last, [&](const Block& block, const Terms& terms, const Integers& q) {
    for (int64_t i = 0; i < block.rows; ++i) {
      place(block, i) = make(q[i], terms.scale[i], terms.zero[i]);
    }
  });
}

void packed_numbers(const PackedLayer& layer, ElementType type, int64_t first, int64_t last,
                    std::byte* out) {
  type == ElementType::kF32
      ? write_numbers<float>(layer, first, last, out, [](float value) { return value; })
      : write_numbers<BFloat16>(layer, first, last, out, f32_to_bf16);
}

}  // namespace tandem::model
