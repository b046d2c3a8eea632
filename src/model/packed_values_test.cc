#include "model/packed_values.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "base/float16.h"
#include "model/json_fields.h"
#include "model/packed_test_support.h"

namespace tandem::model {
namespace {

using kernels::QuantizedGroup;

std::string fnv1a(const std::vector<float>& values) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const float value : values) {
    unsigned char bytes[4];
    std::memcpy(bytes, &value, sizeof bytes);
    for (const unsigned char byte : bytes) {
      hash = (hash ^ byte) * 0x100000001b3U;
    }
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

// Layers that the formats' own libraries wrote and read back; see tools/packed/make_goldens.py.
class PackedGoldens : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::filesystem::path folder =
        std::filesystem::path(TANDEM_GOLDENS) / "packed" / GetParam();
    golden_ = nlohmann::json::parse(read_all(folder / "golden.json"));
    const auto fields = JsonFields::parse("config.json", read_all(folder / "config.json"));
    std::vector<std::string> warnings;
    const auto config = parse_quantization_config(*fields, warnings);
    ASSERT_TRUE(config.ok() && *config) << config.error().message;
    Result<Checkpoint> checkpoint = Checkpoint::open(folder);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    checkpoint_.emplace(std::move(checkpoint).value());
    const auto layers = find_packed_layers(*checkpoint_, **config);
    ASSERT_TRUE(layers.ok()) << layers.error().message;
    ASSERT_TRUE(layers->contains(golden_["layer"].get<std::string>()));
    layer_ = layers->begin()->second;
    const Status checked = check_packed_layer(*checkpoint_, layer_);
    ASSERT_TRUE(checked.ok()) << checked.error().message;
    ASSERT_EQ(layer_.rows, golden_["rows"].get<int64_t>());
    ASSERT_EQ(layer_.columns, golden_["columns"].get<int64_t>());
    values_.resize(static_cast<size_t>(layer_.rows * layer_.columns));
    packed_numbers(layer_, ElementType::kF32, 0, layer_.rows,
                   reinterpret_cast<std::byte*>(values_.data()));
  }

  std::vector<QuantizedGroup> groups(Quantization kind) const {
    std::vector<QuantizedGroup> groups(values_.size() / kQuantizedGroup);
    packed_groups(layer_, kind, 0, layer_.rows, groups.data());
    return groups;
  }

  nlohmann::json golden_;
  std::optional<Checkpoint> checkpoint_;
  PackedLayer layer_;
  std::vector<float> values_;
};

TEST_P(PackedGoldens, AreTheLibrarysNumbersBitForBit) {
  const auto first_row = golden_["first_row"].get<std::vector<float>>();
  for (size_t i = 0; i < first_row.size(); ++i) {
    ASSERT_EQ(values_[i], first_row[i]) << "column " << i;
  }
  EXPECT_EQ(fnv1a(values_), golden_["fnv1a"].get<std::string>());
}

TEST_P(PackedGoldens, AreRoundedOnceToBFloat16) {
  std::vector<BFloat16> narrow(values_.size());
  packed_numbers(layer_, ElementType::kBF16, 0, layer_.rows,
                 reinterpret_cast<std::byte*>(narrow.data()));
  for (size_t i = 0; i < narrow.size(); ++i) {
    ASSERT_EQ(narrow[i], f32_to_bf16(values_[i])) << i;
  }
}

// The bounds of packed_values.h.
TEST_P(PackedGoldens, AreTheSameAsGroups) {
  const Quantization kind = layer_.kind();
  if (kind == Quantization::kNone) {
    EXPECT_NE(layer_.columns % kQuantizedGroup, 0);
    return;
  }
  const std::vector<QuantizedGroup> held = groups(kind);
  int64_t exact_groups = 0;
  for (size_t g = 0; g < held.size(); ++g) {
    const float* values = values_.data() + g * kQuantizedGroup;
    const auto is_exact = [&, i = 0](float value) mutable { return held[g].element(i++) == value; };
    exact_groups += static_cast<int64_t>(std::all_of(values, values + kQuantizedGroup, is_exact));
    float largest = 0.0F;
    for (int64_t i = 0; i < kQuantizedGroup; ++i) {
      largest = std::max(largest, std::fabs(values[i]));
    }
    const float bound = kind == Quantization::kInt4
                            ? std::fabs(f16_to_f32(held[g].minimum)) * 0x1p-11F * 1.001F + 0x1p-25F
                            : largest * 1.001F / 254 + 0x1p-25F;
    for (int64_t i = 0; i < kQuantizedGroup; ++i) {
      ASSERT_NEAR(held[g].element(i), values[i], bound) << g << " " << i;
    }
  }
  if (layer_.scheme.symmetric) {
    EXPECT_EQ(exact_groups, static_cast<int64_t>(held.size()));
  }
}

class PackedFourBits : public PackedGoldens {};

TEST_P(PackedFourBits, AreExactAsInt8) {
  ASSERT_EQ(layer_.scheme.bits, 4);
  const std::vector<QuantizedGroup> wide = groups(Quantization::kInt8);
  for (size_t i = 0; i < values_.size(); ++i) {
    ASSERT_EQ(wide[i / kQuantizedGroup].element(static_cast<int64_t>(i) % kQuantizedGroup),
              values_[i])
        << i;
  }
}

TEST_P(PackedGoldens, AreReadFromAnyRowOn) {
  std::vector<float> rows(static_cast<size_t>(2 * layer_.columns));
  packed_numbers(layer_, ElementType::kF32, 3, 5, reinterpret_cast<std::byte*>(rows.data()));
  EXPECT_TRUE(std::equal(rows.begin(), rows.end(), values_.begin() + 3 * layer_.columns));
}

// A layer with its columns in another order, and the data that it points to.
struct Reordered {
  PackedLayer layer;
  std::vector<int64_t> columns;  // column i was column columns[i]
  std::vector<uint32_t> values;
  std::vector<int32_t> order;
};

// The integer of a column in words of columns, or a byte.
uint32_t integer_at(const PackedLayer& layer, const std::byte* data, int64_t row, int64_t column) {
  if (layer.layout == PackedLayer::Layout::kBytes) {
    return std::to_integer<uint32_t>(data[row * layer.columns + column]);
  }
  const int64_t per_word = layer.per_word();
  const int64_t words = (layer.columns + per_word - 1) / per_word;
  const int64_t index = layer.layout == PackedLayer::Layout::kPacked
                            ? row * words + column / per_word
                            : column / per_word * layer.rows + row;
  uint32_t word = 0;
  std::memcpy(&word, data + index * 4, sizeof word);
  const auto shift = static_cast<int32_t>(column % per_word) * layer.scheme.bits;
  return word >> shift & ((1U << layer.scheme.bits) - 1);
}

// Written as bytes [rows, columns] if it was, else as GPTQ's words of columns.
std::unique_ptr<Reordered> reorder(const PackedLayer& layer) {
  auto made = std::make_unique<Reordered>();
  made->layer = layer;
  for (int64_t i = 0; i < layer.columns; ++i) {
    made->columns.push_back(i);
  }
  std::shuffle(made->columns.begin(), made->columns.end(), std::mt19937(7));
  const bool bytes = layer.layout == PackedLayer::Layout::kBytes;
  const int64_t per_word = layer.per_word();
  made->values.assign(static_cast<size_t>(layer.rows * layer.columns), 0);
  for (int64_t row = 0; row < layer.rows; ++row) {
    for (int64_t i = 0; i < layer.columns; ++i) {
      const uint32_t q = integer_at(layer, layer.values.data, row, made->columns[i]);
      if (bytes) {
        reinterpret_cast<uint8_t*>(made->values.data())[row * layer.columns + i] =
            static_cast<uint8_t>(q);
        continue;
      }
      const int64_t words = (layer.columns + per_word - 1) / per_word;
      const int64_t index = layer.layout == PackedLayer::Layout::kPacked
                                ? row * words + i / per_word
                                : i / per_word * layer.rows + row;
      made->values[index] |= q << (i % per_word * layer.scheme.bits);
    }
  }
  for (const int64_t column : made->columns) {
    made->order.push_back(static_cast<int32_t>(column / (layer.columns / layer.groups)));
  }
  made->layer.values.data = reinterpret_cast<const std::byte*>(made->values.data());
  made->layer.order.data = reinterpret_cast<const std::byte*>(made->order.data());
  made->layer.reordered = true;
  return made;
}

// g_idx names the group of each column: the same integers in another order are the same numbers.
TEST_P(PackedGoldens, AreTheSameNumbersInAnyOrderOfColumns) {
  if (layer_.layout == PackedLayer::Layout::kRowWords) {
    return;  // AWQ has no order of columns
  }
  const auto reordered = reorder(layer_);
  std::vector<float> numbers(values_.size());
  packed_numbers(reordered->layer, ElementType::kF32, 0, layer_.rows,
                 reinterpret_cast<std::byte*>(numbers.data()));
  std::vector<float> wanted;
  for (int64_t row = 0; row < layer_.rows; ++row) {
    for (const int64_t column : reordered->columns) {
      wanted.push_back(values_[row * layer_.columns + column]);
    }
  }
  ASSERT_EQ(numbers, wanted);
  if (reordered->layer.kind() == Quantization::kNone) {
    return;
  }
  ASSERT_EQ(reordered->layer.kind(), Quantization::kInt8);
  std::vector<QuantizedGroup> held(wanted.size() / kQuantizedGroup);
  packed_groups(reordered->layer, Quantization::kInt8, 0, layer_.rows, held.data());
  for (size_t g = 0; g < held.size(); ++g) {
    const float* group = wanted.data() + g * kQuantizedGroup;
    float largest = 0.0F;
    for (int64_t i = 0; i < kQuantizedGroup; ++i) {
      largest = std::max(largest, std::fabs(group[i]));
    }
    for (int64_t i = 0; i < kQuantizedGroup; ++i) {
      ASSERT_NEAR(held[g].element(i), group[i], largest * 1.001F / 254 + 0x1p-25F) << g;
    }
  }
}

std::string test_name(const ::testing::TestParamInfo<const char*>& test) {
  std::string name = test.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

constexpr const char* kFourBits[] = {"gptq-4-symmetric-32",
                                     "gptq-4-symmetric-128",
                                     "gptq-4-asymmetric-64",
                                     "awq-32",
                                     "gptq-v2-4-asymmetric-32",
                                     "pack-4-asymmetric-64",
                                     "awq-64",
                                     "pack-4-symmetric-32-bf16",
                                     "awq-128"};
constexpr const char* kOthers[] = {
    "gptq-8-symmetric-row", "gptq-v2-8-asymmetric-32", "pack-4-symmetric-row-of-44",
    "pack-8-symmetric-128", "pack-8-asymmetric-row",   "int8-symmetric",
    "int8-asymmetric"};
INSTANTIATE_TEST_SUITE_P(FourBits, PackedGoldens, ::testing::ValuesIn(kFourBits), test_name);
INSTANTIATE_TEST_SUITE_P(Others, PackedGoldens, ::testing::ValuesIn(kOthers), test_name);
INSTANTIATE_TEST_SUITE_P(FourBits, PackedFourBits, ::testing::ValuesIn(kFourBits), test_name);

// A layer [1, 32] of int8 with this scale and zero point; q counts up from -128.
std::vector<QuantizedGroup> byte_groups(const std::string& dtype, const std::string& scale,
                                        int8_t zero) {
  TempFolder folder;
  std::string q;
  for (int i = 0; i < 32; ++i) {
    q += static_cast<char>(i * 8 - 128);
  }
  folder.write("model.safetensors",
               raw_safetensors(std::vector<RawTensor>{
                   {kLayer + ".weight", "I8", {1, 32}, q},
                   {kLayer + ".weight_scale", dtype, {1, 1}, scale},
                   {kLayer + ".weight_zero_point", "I8", {1, 1}, repeated(zero, 1)}}));
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder.path());
  const auto layers = find_packed_layers(
      *checkpoint, {.method = QuantizationMethod::kCompressedTensors,
                    .schemes = {{.bits = 8, .symmetric = false, .group_size = -1}}});
  EXPECT_TRUE(layers.ok()) << layers.error().message;
  std::vector<QuantizedGroup> groups(1);
  packed_groups(layers->begin()->second, Quantization::kInt8, 0, 1, groups.data());
  return groups;
}

constexpr uint16_t kHalfInfinityBits = 0x7c00;

TEST(PackedScales, StayWhereFp16HoldsThem) {
  const auto scale_of = [](float scale) {
    return byte_groups("BF16", repeated(f32_to_bf16(scale), 1), 0)[0].scale;
  };
  EXPECT_EQ(f16_to_f32(scale_of(0x1.fep-17F)), 0x1.fep-17F);  // all 8 bits of BF16
  EXPECT_NEAR(f16_to_f32(scale_of(0x1.fep-20F)), 0x1.fep-20F, 0x1p-25F);
  EXPECT_EQ(scale_of(0x1p16F), kHalfInfinityBits);
  EXPECT_EQ(byte_groups("F32", repeated(0.1F, 1), 0)[0].scale, f32_to_f16(0.1F));
}

TEST(PackedScales, ThatAreNotFiniteStaySoForTheLoaderToFind) {
  for (const uint16_t bad : {uint16_t{0x7c00}, uint16_t{0xfc00}, uint16_t{0x7e00}}) {
    for (const int8_t zero : {int8_t{0}, int8_t{-100}}) {  // -100: q - zero exceeds int8
      const uint16_t scale = byte_groups("F16", repeated(bad, 1), zero)[0].scale;
      EXPECT_EQ(scale & kHalfInfinityBits, kHalfInfinityBits) << bad << " " << int{zero};
    }
  }
}

TEST(PackedZeroPoints, AreExactWhereInt8HoldsTheDifference) {
  for (const int8_t zero : {int8_t{0}, int8_t{-7}}) {  // q - zero up to 127
    const QuantizedGroup group = byte_groups("F16", repeated(kHalfOne, 1), zero)[0];
    EXPECT_EQ(group.scale, kHalfOne);
    for (int64_t i = 0; i < 32; ++i) {
      EXPECT_EQ(group.element(i), static_cast<float>(i * 8 - 128 - zero));
    }
  }
}

TEST(PackedZeroPoints, AreRoundedWhereItDoesNot) {
  const QuantizedGroup group = byte_groups("F16", repeated(kHalfOne, 1), -100)[0];
  for (int64_t i = 0; i < 32; ++i) {  // from -28 to 220
    EXPECT_NEAR(group.element(i), static_cast<float>(i * 8 - 28), 220.0F * 1.001F / 254);
  }
}

}  // namespace
}  // namespace tandem::model
