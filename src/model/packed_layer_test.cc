#include "model/packed_layer.h"

#include <gmock/gmock.h>

#include "model/packed_test_support.h"

namespace tandem::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const QuantizationConfig kGptq{.method = QuantizationMethod::kGptq,
                               .zeros_minus_one = true,
                               .schemes = {{.bits = 4, .symmetric = true, .group_size = 32}}};
const QuantizationConfig kCompressed{.method = QuantizationMethod::kCompressedTensors,
                                     .schemes = {{.bits = 4, .symmetric = true, .group_size = 32}}};

class PackedLayers : public ::testing::Test {
 protected:
  // The only layer of a checkpoint with these tensors, checked whole.
  Result<PackedLayer> read(const std::vector<RawTensor>& tensors,
                           const QuantizationConfig& config) {
    folder_.write("model.safetensors", raw_safetensors(tensors));
    Result<Checkpoint> checkpoint = Checkpoint::open(folder_.path());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    checkpoint_.emplace(std::move(checkpoint).value());
    ASSIGN_OR_RETURN(const auto layers, find_packed_layers(*checkpoint_, config));
    EXPECT_EQ(layers.size(), 1U);
    RETURN_IF_ERROR(check_packed_layer(*checkpoint_, layers.begin()->second));
    return layers.begin()->second;
  }
  void refuses(const std::vector<RawTensor>& tensors, const QuantizationConfig& config,
               const std::string& names, const std::string& says) {
    const Result<PackedLayer> layer = read(tensors, config);
    ASSERT_FALSE(layer.ok()) << names << " " << says;
    EXPECT_THAT(layer.error().message,
                AllOf(HasSubstr("model.safetensors"), HasSubstr(names), HasSubstr(says)));
  }

  TempFolder folder_;
  std::optional<Checkpoint> checkpoint_;
};

TEST_F(PackedLayers, AreFoundByTheirTensors) {
  const Result<PackedLayer> gptq = read(gptq_layer(), kGptq);
  ASSERT_TRUE(gptq.ok()) << gptq.error().message;
  EXPECT_EQ(gptq->rows, 16);
  EXPECT_EQ(gptq->columns, 64);
  EXPECT_EQ(gptq->groups, 2);
  EXPECT_EQ(gptq->kind(), Quantization::kInt4Symmetric);
  const Result<PackedLayer> packed = read(packed_layer(), kCompressed);
  ASSERT_TRUE(packed.ok()) << packed.error().message;
  EXPECT_EQ(packed->layout, PackedLayer::Layout::kPacked);
  EXPECT_EQ(packed->columns, 64);
}

TEST_F(PackedLayers, HaveTheSchemeThatTheirShapesFit) {
  QuantizationConfig config = kGptq;
  config.schemes.insert(config.schemes.begin(), {.bits = 8, .symmetric = true, .group_size = 64});
  const Result<PackedLayer> layer = read(gptq_layer(), config);
  ASSERT_TRUE(layer.ok()) << layer.error().message;
  EXPECT_EQ(layer->scheme.bits, 4);
  EXPECT_EQ(layer->groups, 2);
}

// Two groups of compressed-tensors, or a rule of GPTQModel, may differ in this alone.
TEST_F(PackedLayers, HaveTheSchemeThatTheirZeroPointsFit) {
  QuantizationConfig both = kGptq;
  both.schemes.push_back({.bits = 4, .symmetric = false, .group_size = 32});
  std::vector<RawTensor> tensors = gptq_layer();
  const Result<PackedLayer> symmetric = read(tensors, both);
  ASSERT_TRUE(symmetric.ok()) << symmetric.error().message;
  EXPECT_EQ(symmetric->kind(), Quantization::kInt4Symmetric);
  tensor_in(tensors, ".qzeros").bytes[7] = '\x57';
  const Result<PackedLayer> other = read(tensors, both);
  ASSERT_TRUE(other.ok()) << other.error().message;
  EXPECT_EQ(other->kind(), Quantization::kInt4);

  both.method = QuantizationMethod::kCompressedTensors;
  tensors = packed_layer();
  tensors.push_back(words_of(kLayer + ".weight_zero_point", {2, 2}, 0x98989898U));
  const Result<PackedLayer> packed = read(tensors, both);
  ASSERT_TRUE(packed.ok()) << packed.error().message;
  EXPECT_EQ(packed->kind(), Quantization::kInt4);
  tensors.pop_back();
  const Result<PackedLayer> without = read(tensors, both);
  ASSERT_TRUE(without.ok()) << without.error().message;
  EXPECT_EQ(without->kind(), Quantization::kInt4Symmetric);
}

TEST_F(PackedLayers, NeedNoOrderOfColumns) {
  std::vector<RawTensor> tensors = gptq_layer();
  tensors.pop_back();
  EXPECT_TRUE(read(tensors, kGptq).ok());
}

TEST_F(PackedLayers, RefuseTensorsThatAreMissing) {
  for (const char* suffix : {".qzeros", ".scales"}) {
    std::vector<RawTensor> tensors = gptq_layer();
    std::erase_if(tensors, [&](const RawTensor& t) { return t.name.ends_with(suffix); });
    refuses(tensors, kGptq, kLayer + ".qweight", "has no '" + kLayer + suffix + "' beside it");
  }
  for (const char* suffix : {".weight_scale", ".weight_shape"}) {
    std::vector<RawTensor> tensors = packed_layer();
    std::erase_if(tensors, [&](const RawTensor& t) { return t.name.ends_with(suffix); });
    refuses(tensors, kCompressed, kLayer + ".weight_packed", suffix);
  }
  QuantizationConfig asymmetric = kCompressed;
  asymmetric.schemes.front().symmetric = false;
  refuses(packed_layer(), asymmetric, kLayer + ".weight_packed",
          "has no '" + kLayer + ".weight_zero_point' beside it");
}

TEST_F(PackedLayers, RefuseOtherTypes) {
  const struct {
    const char* suffix;
    const char* dtype;
    const char* wanted;
  } cases[] = {{".qweight", "F32", "must be I32"},
               {".qzeros", "U32", "must be I32"},
               {".g_idx", "F32", "must be I32"}};
  for (const auto& bad : cases) {
    std::vector<RawTensor> tensors = gptq_layer();
    tensor_in(tensors, bad.suffix).dtype = bad.dtype;
    refuses(tensors, kGptq, kLayer + bad.suffix, bad.wanted);
  }
  std::vector<RawTensor> tensors = gptq_layer();
  tensor_in(tensors, ".scales").dtype = "I16";
  refuses(tensors, kGptq, kLayer + ".scales", "is I16, but must be F16, BF16 or F32");
}

TEST_F(PackedLayers, RefuseShapesThatDisagree) {
  const struct {
    const char* changed;
    std::vector<int64_t> shape;
    const char* named;
    const char* says;
  } cases[] = {{".qweight", {16, 8}, ".scales", "matrix [8, 128] ask for [4, 8]"},
               {".qweight", {128}, ".qweight", "must have 2 dimensions"},
               {".qzeros", {4, 1}, ".qzeros", "ask for [2, 2]"},
               {".scales", {16, 2}, ".scales", "ask for [2, 16]"},
               {".g_idx", {64, 1}, ".g_idx", "must have 1 dimensions"}};
  for (const auto& bad : cases) {
    std::vector<RawTensor> tensors = gptq_layer();
    tensor_in(tensors, bad.changed).shape = bad.shape;
    refuses(tensors, kGptq, kLayer + bad.named, bad.says);
  }
  std::vector<RawTensor> empty = gptq_layer();
  tensor_in(empty, ".qweight") = {kLayer + ".qweight", "I32", {int64_t{1} << 60, 0}, ""};
  refuses(empty, kGptq, kLayer + ".qweight", "must have 2 dimensions and elements");
}

TEST_F(PackedLayers, RefuseGroupsThatDoNotDivideTheColumns) {
  QuantizationConfig config = kGptq;
  config.schemes.front().group_size = 40;
  refuses(gptq_layer(), config, kLayer + ".qweight",
          "64 columns, which groups of 40 do not divide");
  std::vector<RawTensor> odd = {words_of(kLayer + ".qweight", {8, 12}, 0),
                                words_of(kLayer + ".qzeros", {2, 2}, 0),
                                {kLayer + ".scales", "F16", {2, 12}, repeated(kHalfOne, 24)}};
  refuses(odd, kGptq, kLayer + ".qweight", "12 rows, which words of 8 do not divide");
}

TEST_F(PackedLayers, RefuseShapesOfBadNumbers) {
  for (const int64_t bad : {int64_t{0}, int64_t{-1}, int64_t{1} << 40}) {
    std::vector<RawTensor> tensors = packed_layer();
    tensor_in(tensors, ".weight_shape").bytes = repeated(bad, 1) + repeated(int64_t{64}, 1);
    refuses(tensors, kCompressed, kLayer + ".weight_shape", "holds " + std::to_string(bad));
  }
  std::vector<RawTensor> tensors = packed_layer();
  tensor_in(tensors, ".weight_shape").bytes = repeated(int64_t{16}, 1) + repeated(int64_t{128}, 1);
  refuses(tensors, kCompressed, kLayer + ".weight_packed", "ask for [16, 16]");
  tensor_in(tensors, ".weight_shape") = {
      kLayer + ".weight_shape", "I64", {1}, repeated(int64_t{1}, 1)};
  refuses(tensors, kCompressed, kLayer + ".weight_shape", "must hold 2 numbers");
}

TEST_F(PackedLayers, RefuseALayerThatIsThereTwice) {
  std::vector<RawTensor> tensors = gptq_layer();
  tensors.push_back({kLayer + ".weight", "F16", {16, 64}, repeated(kHalfOne, 16 * 64)});
  refuses(tensors, kGptq, kLayer + ".weight", "duplicates '" + kLayer + ".qweight'");
}

TEST_F(PackedLayers, AreInt8IfTheirColumnsAreOutOfOrder) {
  std::vector<RawTensor> tensors = gptq_layer();
  const Result<PackedLayer> in_order = read(tensors, kGptq);
  ASSERT_TRUE(in_order.ok()) << in_order.error().message;
  EXPECT_FALSE(in_order->reordered);
  EXPECT_EQ(in_order->kind(), Quantization::kInt4Symmetric);
  tensor_in(tensors, ".g_idx").bytes[0] = 1;  // the first column is of the second group
  const Result<PackedLayer> layer = read(tensors, kGptq);
  ASSERT_TRUE(layer.ok()) << layer.error().message;
  EXPECT_TRUE(layer->reordered);
  EXPECT_EQ(layer->kind(), Quantization::kInt8);
}

TEST_F(PackedLayers, RefuseGroupsThatDoNotExist) {
  std::vector<RawTensor> tensors = gptq_layer();
  std::string& order = tensor_in(tensors, ".g_idx").bytes;
  order[0] = 2;
  refuses(tensors, kGptq, kLayer + ".g_idx", "the group 2, but there are 2 groups");
  order[0] = 0;
  order[3] = '\x80';
  refuses(tensors, kGptq, kLayer + ".g_idx", "the group -2147483648, but");
}

TEST_F(PackedLayers, AreInOrderIfTheirOrderWasNeverSet) {
  std::vector<RawTensor> tensors = packed_layer();
  tensors.push_back({kLayer + ".weight_g_idx", "I32", {64}, repeated(int32_t{-1}, 64)});
  const Result<PackedLayer> layer = read(tensors, kCompressed);
  EXPECT_TRUE(layer.ok()) << layer.error().message;
  tensor_in(tensors, ".weight_g_idx").bytes.replace(0, 4, repeated(int32_t{1}, 1));
  refuses(tensors, kCompressed, kLayer + ".weight_g_idx", "some columns a group, and others -1");
  tensors = gptq_layer();
  tensor_in(tensors, ".g_idx").bytes = repeated(int32_t{-1}, 64);
  refuses(tensors, kGptq, kLayer + ".g_idx", "the group -1, but there are 2 groups");
}

TEST_F(PackedLayers, RefuseZeroPointsOfSymmetricLayers) {
  std::vector<RawTensor> tensors = gptq_layer();
  tensor_in(tensors, ".qzeros").bytes[7] = '\x57';  // row 15 of group 0
  refuses(tensors, kGptq, kLayer + ".qzeros", "has the zero point 6 in row 15");
  QuantizationConfig asymmetric = kGptq;
  asymmetric.schemes.front().symmetric = false;
  EXPECT_TRUE(read(tensors, asymmetric).ok());
}

TEST_F(PackedLayers, RefuseBytesOfFourBits) {
  const std::vector<RawTensor> tensors = {
      {kLayer + ".weight", "I8", {2, 32}, repeated(int8_t{1}, 64)},
      {kLayer + ".weight_scale", "F16", {2, 1}, repeated(kHalfOne, 2)}};
  refuses(tensors, kCompressed, kLayer + ".weight", "is I8, but config.json says 4 bits");
}

TEST_F(PackedLayers, RefuseACheckpointWithoutAny) {
  folder_.write("model.safetensors",
                raw_safetensors(std::vector<RawTensor>{
                    {kLayer + ".weight", "F16", {1, 2}, repeated(kHalfOne, 2)}}));
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder_.path());
  const auto layers = find_packed_layers(*checkpoint, kGptq);
  ASSERT_FALSE(layers.ok());
  EXPECT_THAT(layers.error().message,
              HasSubstr("quantised by gptq, but no tensor is called *.qweight"));
}

}  // namespace
}  // namespace tandem::model
