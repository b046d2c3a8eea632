#include "model/gguf_groups.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/float16.h"
#include "gguf/dequantise.h"
#include "gguf/files.h"
#include "gguf/test_support.h"
#include "model/gguf_config.h"
#include "model/test_support.h"
#include "model/weight_formats.h"

namespace tandem::model {
namespace {

using gguf::BlockType;
using gguf::FileBuilder;
using kernels::QuantizedGroup;

// Random blocks of every type; see tools/gguf/make_gguf.py.
class GgufGroups : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    Result<gguf::Files> files = gguf::Files::open(TANDEM_GOLDENS "/gguf-blocks.gguf");
    ASSERT_TRUE(files.ok()) << files.error().message;
    const gguf::Files::PlacedTensor* blocks = files->find(GetParam());
    ASSERT_NE(blocks, nullptr);
    type_ = blocks->tensor->type;
    const std::byte* data = files->parts().front().mapped->bytes().data() + blocks->tensor->begin;
    values_.resize(
        static_cast<size_t>(blocks->tensor->shape.front() * blocks->tensor->shape.back()));
    gguf::dequantise(type_, data, std::span(values_));
    groups_.resize(values_.size() / kQuantizedGroup);
    gguf_groups(type_, data, stored_quantization(type_), std::span(groups_));
    rounded_.resize(groups_.size());
    gguf_groups(type_, data, Quantization::kInt8, std::span(rounded_));
  }

  BlockType type_ = BlockType::kF32;
  std::vector<float> values_;
  std::vector<QuantizedGroup> groups_;
  std::vector<QuantizedGroup> rounded_;  // the same as int8
};

TEST_P(GgufGroups, HoldWhatTheBlocksStandFor) {
  const bool exact = type_ == BlockType::kQ8_0 || type_ == BlockType::kQ4_0 ||
                     type_ == BlockType::kQ4_1 || type_ == BlockType::kQ5_0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const QuantizedGroup& group = groups_[g];
    const float* values = values_.data() + g * kQuantizedGroup;
    float largest = 0.0F;
    for (int64_t i = 0; i < kQuantizedGroup; ++i) {
      largest = std::max(largest, std::fabs(values[i]));
    }
    const float parts =
        std::fabs(f16_to_f32(group.minimum)) + 15 * std::fabs(f16_to_f32(group.scale));
    for (int64_t i = 0; i < kQuantizedGroup; ++i) {
      if (exact) {
        ASSERT_EQ(group.element(i), values[i]) << g << " " << i;
      } else if (type_ == BlockType::kQ4_K) {  // both parts rounded to 11 bits
        ASSERT_NEAR(group.element(i), values[i], parts / 2047 + 1e-6F) << g << " " << i;
      } else {
        ASSERT_NEAR(group.element(i), values[i], largest / 253 + 1e-6F) << g << " " << i;
      }
    }
  }
}

// From the file's values, not from int4's.
TEST_P(GgufGroups, AreRoundedOnceWhereInt8IsAskedFor) {
  const bool stays = type_ == BlockType::kQ8_0 || type_ == BlockType::kQ5_0;
  for (size_t g = 0; g < rounded_.size(); ++g) {
    float values[kQuantizedGroup];
    std::copy_n(values_.data() + g * kQuantizedGroup, kQuantizedGroup, values);
    const QuantizedGroup wanted =
        stays ? groups_[g] : kernels::quantize_group(Quantization::kInt8, values);
    ASSERT_EQ(rounded_[g].scale, wanted.scale);
    ASSERT_EQ(rounded_[g].minimum, 0);
    ASSERT_TRUE(std::ranges::equal(rounded_[g].values, wanted.values)) << g;
  }
}

TEST_P(GgufGroups, AreOfTheKindThatIsSaid) {
  const Quantization kind = stored_quantization(type_);
  const int8_t min_value = kind == Quantization::kInt8   ? -128
                           : kind == Quantization::kInt4 ? 0
                                                         : -8;
  const int8_t max_value = kind == Quantization::kInt8 ? 127 : kind == Quantization::kInt4 ? 15 : 7;
  for (const QuantizedGroup& group : groups_) {
    for (const int8_t value : group.values) {
      ASSERT_GE(value, min_value);
      ASSERT_LE(value, max_value);
    }
    ASSERT_TRUE(has_minimum(kind) || group.minimum == 0);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryType, GgufGroups,
                         ::testing::Values("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K",
                                           "Q6_K"),
                         [](const auto& test) { return std::string(test.param); });

constexpr uint16_t kInfinity = 0x7c00;

// One block of 0xff but for the two bytes at `at`.
std::vector<QuantizedGroup> groups_with(BlockType type, size_t at, uint16_t half) {
  std::vector<std::byte> block(static_cast<size_t>(gguf::block_shape(type).bytes), std::byte{0xff});
  std::memcpy(&block[at], &half, sizeof half);
  if (type != BlockType::kQ6_K) {  // no minima
    block[at + 2] = block[at + 3] = std::byte{0};
  }
  std::vector<QuantizedGroup> groups(8);
  gguf_groups(type, block.data(), stored_quantization(type), std::span(groups));
  return groups;
}

TEST(GgufGroupScale, WhatDoesNotFitFp16StaysInfiniteForTheLoaderToFind) {
  constexpr uint16_t kLargest = 0x7bff;                                             // 65504
  EXPECT_EQ(groups_with(BlockType::kQ4_K, 0, kLargest)[0].scale, kInfinity);        // times 63
  EXPECT_EQ(groups_with(BlockType::kQ5_K, 0, kLargest)[0].scale, kInfinity);        // times 63 x 31
  EXPECT_EQ(groups_with(BlockType::kQ5_K, 0, 0x6400)[0].scale, f32_to_f16(15747));  // 1024: fits
  EXPECT_EQ(groups_with(BlockType::kQ6_K, 208, kInfinity)[0].scale, kInfinity);
}

TEST(GgufGroupScale, TheLargestOfFp16IsAllowed) {
  std::vector<std::byte> block(144, std::byte{0});
  block[0] = std::byte{0xff};
  block[1] = std::byte{0x7b};  // d = 65504
  block[4] = std::byte{1};     // times 1
  std::vector<QuantizedGroup> groups(8);
  gguf_groups(BlockType::kQ4_K, block.data(), Quantization::kInt4, std::span(groups));
  EXPECT_EQ(groups[0].scale, 0x7bff);
}

// A file of a model whose matrices have these types; layer 0 alone is looked at.
std::optional<WeightFormats> formats_of(const std::vector<std::pair<std::string, uint32_t>>& types,
                                        int64_t head_dim = 32) {
  FileBuilder file;
  file.string("general.architecture", "llama").integer("llama.block_count", 1);
  file.integer("llama.context_length", 64).integer("llama.embedding_length", 32);
  file.integer("llama.feed_forward_length", 32).integer("llama.attention.head_count", 1);
  file.integer("llama.attention.head_count_kv", 1).integer("llama.attention.key_length", head_dim);
  file.number("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  for (const auto& [name, type] : types) {
    const auto known = static_cast<BlockType>(type);
    file.tensor(name, {32, 32}, type,
                std::string(static_cast<size_t>(32 * 32 / gguf::block_shape(known).elements *
                                                gguf::block_shape(known).bytes),
                            '\0'));
  }
  TempFolder folder;
  folder.write("m.gguf", file.bytes());
  const Result<gguf::Files> files = gguf::Files::open(folder.path() / "m.gguf");
  EXPECT_TRUE(files.ok()) << files.error().message;
  const Result<ModelConfig> config = gguf_config(*files);
  EXPECT_TRUE(config.ok()) << config.error().message;
  return gguf_weight_formats(*files, *config);
}

constexpr uint32_t kTypeF32 = 0;
constexpr uint32_t kTypeQ4 = 2;
constexpr uint32_t kTypeQ41 = 3;
constexpr uint32_t kTypeQ8 = 8;

TEST(GgufFormats, AFileOfNumbersHasNone) {
  EXPECT_FALSE(formats_of({{"token_embd.weight", kTypeF32}, {"blk.0.attn_q.weight", kTypeF32}}));
}

TEST(GgufFormats, PartsOfAMatrixGetTheKindThatHoldsThemAll) {
  const auto formats = formats_of({{"token_embd.weight", kTypeQ8},
                                   {"blk.0.attn_q.weight", kTypeQ4},
                                   {"blk.0.attn_k.weight", kTypeQ4},
                                   {"blk.0.attn_v.weight", kTypeQ8},
                                   {"blk.0.attn_output.weight", kTypeQ4},
                                   {"blk.0.ffn_gate.weight", kTypeQ4},
                                   {"blk.0.ffn_up.weight", kTypeQ41},
                                   {"blk.0.ffn_down.weight", kTypeF32}});
  ASSERT_TRUE(formats);
  const auto of = [&](const std::string& name) {
    return formats->of("model.layers.0." + name + ".weight", false).quantization;
  };
  EXPECT_EQ(of("self_attn.q_proj"), Quantization::kInt8);
  EXPECT_EQ(of("self_attn.v_proj"), Quantization::kInt8);
  EXPECT_EQ(of("self_attn.o_proj"), Quantization::kInt4Symmetric);
  EXPECT_EQ(of("mlp.gate_proj"), Quantization::kInt4);
  EXPECT_EQ(of("mlp.down_proj"), Quantization::kNone);
  EXPECT_EQ(formats->of("model.embed_tokens.weight", true).quantization, Quantization::kInt8);
  EXPECT_EQ(formats->layers.quantization, Quantization::kInt8);
  EXPECT_EQ(formats->name(), "gguf int8+bfloat16+int4+int4-symmetric");
}

// Their groups are cut by the padding of each head.
TEST(GgufFormats, TheOutputOfHeadsOf48IsNotRoundedToFourBitsAgain) {
  for (const uint32_t type : {kTypeQ4, kTypeQ41, kTypeQ8}) {
    const auto formats = formats_of({{"token_embd.weight", kTypeQ8},
                                     {"blk.0.attn_output.weight", type},
                                     {"blk.0.ffn_down.weight", kTypeQ4}},
                                    48);
    ASSERT_TRUE(formats);
    EXPECT_EQ(formats->of("model.layers.0.self_attn.o_proj.weight", false).quantization,
              Quantization::kInt8);
    EXPECT_EQ(formats->of("model.layers.0.mlp.down_proj.weight", false).quantization,
              Quantization::kInt4Symmetric);
  }
  const auto numbers =
      formats_of({{"token_embd.weight", kTypeQ8}, {"blk.0.attn_output.weight", kTypeF32}}, 48);
  ASSERT_TRUE(numbers);
  EXPECT_EQ(numbers->of("model.layers.0.self_attn.o_proj.weight", false).quantization,
            Quantization::kNone);
}

TEST(GgufFormats, OneNumberTensorKeepsItsMatrixInNumbers) {
  const auto formats = formats_of({{"token_embd.weight", kTypeQ8},
                                   {"blk.0.attn_q.weight", kTypeQ8},
                                   {"blk.0.attn_k.weight", kTypeQ8},
                                   {"blk.0.attn_v.weight", kTypeF32}});
  ASSERT_TRUE(formats);
  EXPECT_EQ(formats->of("model.layers.0.self_attn.q_proj.weight", false).quantization,
            Quantization::kNone);
}

}  // namespace
}  // namespace tandem::model
