#include "gguf/dequantise.h"

#include <gtest/gtest.h>

#include <vector>

#include "gguf/files.h"

namespace tandem::gguf {
namespace {

// A file of random blocks and of their values as another implementation reads them; see
// tools/gguf/make_gguf.py.
class Dequantise : public ::testing::TestWithParam<const char*> {};

TEST_P(Dequantise, GivesTheValuesOfAnotherReaderBitForBit) {
  const Result<Files> files = Files::open(TANDEM_GOLDENS "/gguf-blocks.gguf");
  ASSERT_TRUE(files.ok()) << files.error().message;
  const std::string name = GetParam();
  const Files::PlacedTensor* blocks = files->find(name);
  const Files::PlacedTensor* golden = files->find(name + ".values");
  ASSERT_NE(blocks, nullptr);
  ASSERT_NE(golden, nullptr);
  ASSERT_EQ(type_name(blocks->tensor->type), name);
  ASSERT_EQ(blocks->tensor->shape, golden->tensor->shape);
  const std::byte* data = files->parts().front().mapped->bytes().data();
  const auto count =
      static_cast<size_t>(golden->tensor->shape.front() * golden->tensor->shape.back());
  std::vector<float> wanted(count);
  dequantise(BlockType::kF32, data + golden->tensor->begin, std::span(wanted));
  std::vector<float> values(count);
  dequantise(blocks->tensor->type, data + blocks->tensor->begin, std::span(values));
  std::vector<BFloat16> rounded(count);
  dequantise(blocks->tensor->type, data + blocks->tensor->begin, std::span(rounded));
  for (size_t i = 0; i < count; ++i) {
    ASSERT_EQ(values[i], wanted[i]) << name << " " << i;
    ASSERT_EQ(rounded[i], f32_to_bf16(wanted[i])) << name << " " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(EveryType, Dequantise,
                         ::testing::Values("F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1",
                                           "Q4_K", "Q5_K", "Q6_K"),
                         [](const auto& test) { return std::string(test.param); });

TEST(DequantiseScale, KeepsWhatIsNotFiniteForTheLoaderToFind) {
  std::vector<std::byte> block(34, std::byte{1});
  block[0] = std::byte{0x00};
  block[1] = std::byte{0x7E};  // NaN as the scale
  std::vector<float> values(32);
  dequantise(BlockType::kQ8_0, block.data(), std::span(values));
  EXPECT_NE(values[0], values[0]);
}

}  // namespace
}  // namespace tandem::gguf
