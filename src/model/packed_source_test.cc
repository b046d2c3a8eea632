#include "model/packed_source.h"

#include <gmock/gmock.h>

#include <cstring>

#include "device/cpu/cpu_device.h"
#include "kernels/kernels.h"
#include "kernels/quantize.h"
#include "model/model_folder.h"
#include "model/packed_test_support.h"
#include "model/weights.h"

namespace tandem::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kHidden = 64;
constexpr int64_t kIntermediate = 96;
constexpr int64_t kVocabulary = 40;

RawTensor halves(const std::string& name, const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t dimension : shape) {
    count *= dimension;
  }
  return {name, "F16", shape, repeated(kHalfOne, count)};
}

// Weights of GPTQ, 4 bits in whole rows, each 1 = 9 - 8.
void add_layer(std::vector<RawTensor>& tensors, const std::string& name, int64_t rows,
               int64_t columns) {
  tensors.push_back(words_of(name + ".qweight", {columns / 8, rows}, 0x99999999U));
  tensors.push_back(words_of(name + ".qzeros", {1, rows / 8}, 0x77777777U));
  tensors.push_back(halves(name + ".scales", {1, rows}));
}

// One layer, two heads of 32; `plain` layers are numbers.
std::vector<RawTensor> model_tensors(const std::vector<std::string>& plain = {}) {
  std::vector<RawTensor> tensors = {halves("model.embed_tokens.weight", {kVocabulary, kHidden}),
                                    halves("model.norm.weight", {kHidden}),
                                    halves("lm_head.weight", {kVocabulary, kHidden})};
  const std::string layer = "model.layers.0.";
  for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
    tensors.push_back(halves(layer + norm + ".weight", {kHidden}));
  }
  const struct {
    const char* name;
    int64_t rows;
    int64_t columns;
  } matrices[] = {
      {"self_attn.q_proj", kHidden, kHidden},    {"self_attn.k_proj", kHidden, kHidden},
      {"self_attn.v_proj", kHidden, kHidden},    {"self_attn.o_proj", kHidden, kHidden},
      {"mlp.gate_proj", kIntermediate, kHidden}, {"mlp.up_proj", kIntermediate, kHidden},
      {"mlp.down_proj", kHidden, kIntermediate}};
  for (const auto& [name, rows, columns] : matrices) {
    if (std::ranges::find(plain, name) != plain.end()) {
      tensors.push_back(halves(layer + name + ".weight", {rows, columns}));
    } else {
      add_layer(tensors, layer + name, rows, columns);
    }
  }
  return tensors;
}

const char* const kPackedConfig = R"({
  "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "hidden_size": 64,
  "intermediate_size": 96, "num_attention_heads": 2, "vocab_size": 40, "torch_dtype": "float16",
  "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": -1, "sym": true}})";

class PackedModels : public ::testing::Test {
 protected:
  void write(const std::vector<RawTensor>& tensors, const std::string& config = kPackedConfig) {
    folder_.write("model.safetensors", raw_safetensors(tensors));
    folder_.write("config.json", config);
  }
  ModelFolder open() {
    Result<ModelFolder> folder = open_model_folder(folder_.path());
    EXPECT_TRUE(folder.ok()) << folder.error().message;
    return folder.ok() ? *std::move(folder) : ModelFolder{};
  }
  Result<Weights> load(const WeightFormats& formats) {
    if (device_ == nullptr) {
      device_ = *device::make_cpu_device({.threads = 2, .isa = kernels::Isa::kRef});
    }
    const ModelFolder folder = open();
    return load_weights(folder_.path(), folder.config, *device_, {.format = formats});
  }
  TempFolder folder_;
  std::unique_ptr<device::Device> device_;
};

TEST_F(PackedModels, KeepTheirWeights) {
  write(model_tensors());
  const ModelFolder folder = open();
  ASSERT_TRUE(folder.stored);
  EXPECT_EQ(folder.stored->name(), "gptq int4-symmetric+bfloat16");
  const auto of = [&](const char* name, bool token = false) {
    return folder.stored->of(name, token).quantization;
  };
  EXPECT_EQ(of("model.layers.0.mlp.up_proj.weight"), Quantization::kInt4Symmetric);
  EXPECT_EQ(of("lm_head.weight", true), Quantization::kNone);
  const Result<Weights> weights = load(*folder.stored);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  EXPECT_EQ(weights->layers[0].down.format.quantization, Quantization::kInt4Symmetric);
}

TEST_F(PackedModels, BecomeNumbersWhereAskedFor) {
  write(model_tensors());
  const ModelConfig config = open().config;
  for (const ElementType type : {ElementType::kBF16, ElementType::kF32}) {
    const auto source = open_weights(folder_.path(), config, device::WeightFormat{.type = type});
    ASSERT_TRUE(source.ok()) << source.error().message;
    const WeightSource::Tensor* up = (*source)->find("model.layers.0.mlp.up_proj.weight");
    ASSERT_NE(up, nullptr);
    EXPECT_EQ(up->entry->type, type);
    EXPECT_EQ(up->entry->quantization, Quantization::kNone);
    EXPECT_EQ(up->entry->shape, (std::vector<int64_t>{kIntermediate, kHidden}));
    EXPECT_EQ((*source)->name_in_file("model.layers.0.mlp.up_proj.weight"),
              "model.layers.0.mlp.up_proj.qweight");
    const Status loaded = (*source)->load(up->file, up->entry->begin, up->entry->end);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    const std::byte* data = (*source)->data(up->file, up->entry->begin);
    for (int64_t i = 0; i < kIntermediate * kHidden; ++i) {
      float value = 0.0F;
      BFloat16 narrow = 0;
      if (type == ElementType::kF32) {
        std::memcpy(&value, data + i * 4, 4);
      } else {
        std::memcpy(&narrow, data + i * 2, 2);
        value = bf16_to_f32(narrow);
      }
      ASSERT_EQ(value, 1.0F) << i;
    }
    (*source)->release(up->file, up->entry->begin, up->entry->end);
  }
}

TEST_F(PackedModels, HoldAMatrixAsItsPartsAllow) {
  write(model_tensors({"self_attn.v_proj", "mlp.down_proj"}));
  const ModelFolder folder = open();
  ASSERT_TRUE(folder.stored);
  const auto of = [&](const char* name) { return folder.stored->of(name, false).quantization; };
  EXPECT_EQ(of("model.layers.0.self_attn.q_proj.weight"), Quantization::kNone);
  EXPECT_EQ(of("model.layers.0.self_attn.o_proj.weight"), Quantization::kInt4Symmetric);
  EXPECT_EQ(of("model.layers.0.mlp.down_proj.weight"), Quantization::kNone);
  const Result<Weights> weights = load(*folder.stored);
  EXPECT_TRUE(weights.ok()) << weights.error().message;
}

TEST_F(PackedModels, AreRoundedAnewWhereAskedFor) {
  write(model_tensors());
  for (const Quantization kind : {Quantization::kInt8, Quantization::kInt4}) {
    const Result<Weights> weights = load(device::weight_format(ElementType::kBF16, kind));
    ASSERT_TRUE(weights.ok()) << weights.error().message;
    EXPECT_EQ(weights->layers[0].down.format.quantization, kind);
  }
}

TEST_F(PackedModels, LeaveOutBiasesOfZeros) {
  std::vector<RawTensor> tensors = model_tensors();
  tensors.push_back(
      {"model.layers.0.mlp.down_proj.bias", "F16", {kHidden}, repeated(uint16_t{0}, kHidden)});
  write(tensors);
  EXPECT_TRUE(load(*open().stored).ok());
  tensors.back().bytes = repeated(kHalfOne, kHidden);
  write(tensors);
  const Result<Weights> refused = load(*open().stored);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("'model.layers.0.mlp.down_proj.bias' is a bias"));
}

TEST_F(PackedModels, NameScalesThatAreNotFinite) {
  for (const uint16_t bad : {uint16_t{0x7c00}, uint16_t{0x7e00}}) {
    std::vector<RawTensor> tensors = model_tensors();
    std::string& scales = tensor_in(tensors, "down_proj.scales").bytes;
    std::memcpy(scales.data() + 2 * 5, &bad, sizeof bad);
    write(tensors);
    const Result<Weights> kept = load(*open().stored);
    ASSERT_FALSE(kept.ok());
    EXPECT_THAT(kept.error().message, AllOf(HasSubstr("'model.layers.0.mlp.down_proj.qweight'"),
                                            HasSubstr("the scale of the 32 elements from 480 on")));
    const Result<Weights> numbers = load({});
    ASSERT_FALSE(numbers.ok());
    EXPECT_THAT(numbers.error().message, AllOf(HasSubstr("'model.layers.0.mlp.down_proj.qweight'"),
                                               HasSubstr("element 480 is")));
  }
}

TEST_F(PackedModels, OfAConfigThatDoesNotSaySoAreNamed) {
  write(model_tensors());
  const std::string config = kPackedConfig;
  folder_.write("config.json", config.substr(0, config.find(",\n  \"quantization_config")) + "}");
  const Result<Weights> refused = load({});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("the layer is quantised"), HasSubstr("quantization_config")));
}

TEST_F(PackedModels, WithALayerOfAnotherShapeAreRefused) {
  std::vector<RawTensor> tensors = model_tensors();
  std::erase_if(tensors, [](const RawTensor& tensor) {
    return tensor.name.starts_with("model.layers.0.mlp.down_proj");
  });
  add_layer(tensors, "model.layers.0.mlp.down_proj", kHidden, 32);
  write(tensors);
  const Result<Weights> refused = load(*open().stored);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("down_proj.qweight' has shape [64, 32]"), HasSubstr("[64, 96]")));
}

}  // namespace
}  // namespace tandem::model
