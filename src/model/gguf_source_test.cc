#include "model/gguf_source.h"

#include <gmock/gmock.h>

#include <cstring>
#include <numeric>

#include "gguf/test_support.h"
#include "kernels/quantize.h"
#include "model/test_support.h"

namespace tandem::model {
namespace {

using gguf::FileBuilder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kQ8 = 8;

// Rows of one Q8_0 block each: scale `scale` and values row, row + 1, ...
std::string q8_rows(int64_t rows, uint16_t scale) {
  std::string bytes;
  for (int64_t row = 0; row < rows; ++row) {
    bytes += FileBuilder::number_bytes(scale);
    for (int64_t i = 0; i < 32; ++i) {
      bytes += static_cast<char>(row + i);
    }
  }
  return bytes;
}

std::vector<float> count_up(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

// One layer with two heads of four dimensions for q and one for k; hidden 32.
FileBuilder model_file(const std::string& architecture) {
  FileBuilder file;
  const std::string& name = architecture;
  file.string("general.architecture", name).integer(name + ".block_count", 1);
  file.integer(name + ".context_length", 64).integer(name + ".embedding_length", 32);
  file.integer(name + ".feed_forward_length", 32).integer(name + ".attention.head_count", 2);
  file.integer(name + ".attention.head_count_kv", 1).integer(name + ".attention.key_length", 4);
  file.number(name + ".attention.layer_norm_rms_epsilon", 1e-5F);
  file.floats("token_embd.weight", {4, 32}, count_up(128));
  file.tensor("blk.0.attn_q.weight", {8, 32}, kQ8, q8_rows(8, 0x3C00));
  file.floats("blk.0.attn_k.weight", {4, 32}, count_up(128));
  file.floats("blk.0.attn_q.bias", {8}, count_up(8));
  return file;
}

class GgufWeights : public ::testing::Test {
 protected:
  std::unique_ptr<WeightSource> open(const FileBuilder& file, const WeightFormats& formats = {}) {
    folder_.write("m.gguf", file.bytes());
    Result<std::unique_ptr<WeightSource>> source =
        GgufSource::open(folder_.path() / "m.gguf", formats);
    EXPECT_TRUE(source.ok()) << source.error().message;
    return source.ok() ? *std::move(source) : nullptr;
  }
  static const TensorEntry& entry(const WeightSource& source, const char* name) {
    return *source.find(name)->entry;
  }
  // The first value of each row, as fp32.
  static std::vector<float> first_values(const WeightSource& source, const char* name) {
    const TensorEntry& tensor = entry(source, name);
    EXPECT_TRUE(source.load(0, tensor.begin, tensor.end).ok());
    const int64_t rows = tensor.shape.front();
    std::vector<float> values;
    for (int64_t row = 0; row < rows; ++row) {
      const std::byte* at = source.data(0, tensor.begin + tensor.bytes() / rows * row);
      float value = 0.0F;
      if (tensor.type == ElementType::kBF16) {
        BFloat16 bits = 0;
        std::memcpy(&bits, at, sizeof bits);
        value = bf16_to_f32(bits);
      } else {
        std::memcpy(&value, at, sizeof value);
      }
      values.push_back(value);
    }
    source.release(0, tensor.begin, tensor.end);
    return values;
  }

 private:
  TempFolder folder_;
};

TEST_F(GgufWeights, PutsTheRowsOfLlamasHeadsBackInOrder) {
  const auto source = open(model_file("llama"));
  EXPECT_THAT(first_values(*source, "model.layers.0.self_attn.q_proj.weight"),
              ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  EXPECT_THAT(first_values(*source, "model.layers.0.self_attn.k_proj.weight"),
              ElementsAre(0, 64, 32, 96));
  EXPECT_THAT(first_values(*source, "model.layers.0.self_attn.q_proj.bias"),
              ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  EXPECT_THAT(first_values(*source, "model.embed_tokens.weight"), ElementsAre(0, 32, 64, 96));
}

TEST_F(GgufWeights, LeavesTheRowsOfQwenWhereTheyAre) {
  const auto source = open(model_file("qwen2"));
  EXPECT_THAT(first_values(*source, "model.layers.0.self_attn.q_proj.weight"),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(first_values(*source, "model.layers.0.self_attn.q_proj.bias"),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST_F(GgufWeights, DeliversQuantisedTypesAsAsked) {
  const char* name = "model.layers.0.self_attn.q_proj.weight";
  const auto narrow = open(model_file("qwen2"));
  EXPECT_EQ(entry(*narrow, name).type, ElementType::kBF16);
  EXPECT_EQ(entry(*narrow, name).dtype, "Q8_0");
  EXPECT_EQ(entry(*narrow, name).bytes(), 8 * 32 * 2);
  const auto wide = open(model_file("qwen2"), device::WeightFormat{.type = ElementType::kF32});
  EXPECT_EQ(entry(*wide, name).type, ElementType::kF32);
  EXPECT_THAT(first_values(*wide, name), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST_F(GgufWeights, KeepsGroupsWhereTheFormatsSaySo) {
  const char* name = "model.layers.0.self_attn.q_proj.weight";
  WeightFormats formats;
  formats.tensors[name] = Quantization::kInt8;
  formats.tensors["model.layers.0.self_attn.k_proj.weight"] = Quantization::kInt8;
  const auto source = open(model_file("llama"), formats);
  const TensorEntry& tensor = entry(*source, name);
  EXPECT_EQ(tensor.quantization, Quantization::kInt8);
  EXPECT_EQ(tensor.bytes(), int64_t{8 * sizeof(kernels::QuantizedGroup)});
  ASSERT_TRUE(source->load(0, tensor.begin, tensor.end).ok());
  const auto* groups =
      reinterpret_cast<const kernels::QuantizedGroup*>(source->data(0, tensor.begin));
  EXPECT_EQ(groups[1].scale, 0x3C00);
  EXPECT_THAT(groups[1].values, ::testing::Contains(2 + 31));  // row 2 of the file
  EXPECT_EQ(groups[1].values[0], 2);
  // Numbers stay numbers.
  EXPECT_EQ(entry(*source, "model.layers.0.self_attn.k_proj.weight").quantization,
            Quantization::kNone);
}

TEST_F(GgufWeights, DeliversNumbersWherePaddingCutsGroupsAndForVectors) {
  const char* output = "model.layers.0.self_attn.o_proj.weight";
  const char* norm = "model.norm.weight";
  FileBuilder file = model_file("llama");  // heads of four
  file.tensor("blk.0.attn_output.weight", {8, 32}, kQ8, q8_rows(8, 0x3C00));
  file.tensor("output_norm.weight", {32}, kQ8, q8_rows(1, 0x3C00));
  WeightFormats formats;
  formats.tensors[output] = Quantization::kInt8;
  formats.tensors[norm] = Quantization::kInt8;
  const auto source = open(file, formats);
  EXPECT_EQ(entry(*source, output).quantization, Quantization::kNone);
  EXPECT_EQ(entry(*source, output).type, ElementType::kF32) << "rounded when it is packed";
  EXPECT_EQ(entry(*source, norm).quantization, Quantization::kNone);
}

TEST_F(GgufWeights, MakesInt8OfInt4BesideInt8AtOnce) {
  constexpr uint32_t kQ41 = 3;
  const char* name = "model.layers.0.self_attn.v_proj.weight";
  FileBuilder file = model_file("llama");
  std::string rows;
  for (int row = 0; row < 4; ++row) {
    rows += FileBuilder::number_bytes(uint16_t{0x3C00}) + FileBuilder::number_bytes(uint16_t{0});
    rows += std::string(16, static_cast<char>(0xf0));  // sixteen times 0, sixteen times 15
  }
  file.tensor("blk.0.attn_v.weight", {4, 32}, kQ41, rows);
  WeightFormats formats;
  formats.tensors[name] = Quantization::kInt8;
  const auto source = open(file, formats);
  const TensorEntry& tensor = entry(*source, name);
  EXPECT_EQ(tensor.quantization, Quantization::kInt8);
  ASSERT_TRUE(source->load(0, tensor.begin, tensor.end).ok());
  const auto* group =
      reinterpret_cast<const kernels::QuantizedGroup*>(source->data(0, tensor.begin));
  EXPECT_EQ(group->values[0], 0);
  EXPECT_EQ(group->values[16], 127);
  formats.tensors[name] = Quantization::kInt4;
  EXPECT_EQ(entry(*open(file, formats), name).quantization, Quantization::kInt4);
}

TEST_F(GgufWeights, RoundsOnlyOnceWhatIsQuantisedOtherwise) {
  const auto source =
      open(model_file("qwen2"), device::weight_format(ElementType::kBF16, Quantization::kInt4));
  EXPECT_EQ(entry(*source, "model.layers.0.self_attn.q_proj.weight").type, ElementType::kF32);
}

TEST_F(GgufWeights, LoadsPartsOfATensor) {
  const auto source = open(model_file("llama"));
  const TensorEntry& tensor = entry(*source, "model.layers.0.self_attn.q_proj.weight");
  const int64_t row = tensor.bytes() / 8;
  for (const int64_t first : {4, 0}) {
    ASSERT_TRUE(source->load(0, tensor.begin + first * row, tensor.begin + (first + 4) * row).ok());
  }
  BFloat16 bits = 0;
  std::memcpy(&bits, source->data(0, tensor.begin + 5 * row + 2), sizeof bits);
  EXPECT_EQ(bf16_to_f32(bits), 7.0F);  // stored row 6, value 1
  source->release(0, tensor.begin, tensor.begin + 4 * row);
  std::memcpy(&bits, source->data(0, tensor.begin + 4 * row), sizeof bits);
  EXPECT_EQ(bf16_to_f32(bits), 4.0F);
}

TEST_F(GgufWeights, NamesTensorsAsTheFileDoes) {
  const auto source = open(model_file("llama"));
  EXPECT_EQ(source->name_in_file("model.layers.0.mlp.up_proj.weight"), "blk.0.ffn_up.weight");
  EXPECT_EQ(source->file_name(0), "m.gguf");
}

TEST_F(GgufWeights, RefusesRowsThatMakeNoHeads) {
  TempFolder folder;
  FileBuilder file = model_file("llama");
  file.floats("blk.0.attn_k.bias", {3}, {1, 2, 3});
  folder.write("m.gguf", file.bytes());
  const auto source = GgufSource::open(folder.path() / "m.gguf", {});
  ASSERT_FALSE(source.ok());
  EXPECT_THAT(source.error().message,
              HasSubstr("m.gguf: tensor 'blk.0.attn_k.bias' has 3 rows of 1 values"));
}

}  // namespace
}  // namespace tandem::model
