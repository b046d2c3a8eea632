#include "model/weights.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "device/cpu/cpu_device.h"
#include "kernels/kernels.h"
#include "kernels/kv_layout.h"
#include "model/finite.h"
#include "model/model_folder.h"
#include "model/test_support.h"
#include "support/forwarding_device.h"

namespace tandem::model {
namespace {

constexpr device::WeightFormat kAsBF16{.type = ElementType::kBF16};
constexpr device::WeightFormat kAsF32{.type = ElementType::kF32};

using kernels::PackedMatrix;
using kernels::round_up;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::unique_ptr<device::Device> cpu_device(kernels::Isa isa) {
  auto made = device::make_cpu_device({.threads = 2, .isa = isa});
  EXPECT_TRUE(made.ok()) << made.error().message;
  return std::move(made).value();
}

// No dimension is a multiple of 32.
ModelConfig odd_config() {
  ModelConfig config;
  config.layers = 2;
  config.hidden = 44;
  config.intermediate = 52;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 10;
  config.vocabulary = 70;
  config.qkv_bias = true;
  return config;
}

using Tensors = std::map<std::string, HandTensor>;

// Every tensor of the model with values that all three types hold exactly.
Tensors tensors_of(const ModelConfig& config, ElementType type) {
  Tensors tensors;
  std::mt19937 random(7);
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    HandTensor tensor{name, shape, {}, type};
    int64_t count = 1;
    for (const int64_t dimension : shape) {
      count *= dimension;
    }
    for (int64_t i = 0; i < count; ++i) {
      tensor.values.push_back(static_cast<float>(static_cast<int>(random() % 255) - 127) / 64.0F);
    }
    tensors[name] = std::move(tensor);
  };
  const int64_t query = int64_t{config.heads} * config.head_dim;
  const int64_t key_value = int64_t{config.kv_heads} * config.head_dim;
  add("model.embed_tokens.weight", {config.vocabulary, config.hidden});
  add("model.norm.weight", {config.hidden});
  if (!config.tied_embeddings) {
    add("lm_head.weight", {config.vocabulary, config.hidden});
  }
  for (int i = 0; i < config.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    add(layer + "input_layernorm.weight", {config.hidden});
    add(layer + "post_attention_layernorm.weight", {config.hidden});
    for (const auto& [name, rows] : {std::pair("q_proj", query), std::pair("k_proj", key_value),
                                     std::pair("v_proj", key_value)}) {
      add(layer + "self_attn." + name + ".weight", {rows, config.hidden});
      if (config.qkv_bias) {
        add(layer + "self_attn." + name + ".bias", {rows});
      }
    }
    add(layer + "self_attn.o_proj.weight", {config.hidden, query});
    add(layer + "mlp.gate_proj.weight", {config.intermediate, config.hidden});
    add(layer + "mlp.up_proj.weight", {config.intermediate, config.hidden});
    add(layer + "mlp.down_proj.weight", {config.hidden, config.intermediate});
  }
  return tensors;
}

std::vector<HandTensor> listed(const Tensors& tensors) {
  std::vector<HandTensor> list;
  for (const auto& [name, tensor] : tensors) {
    list.push_back(tensor);
  }
  return list;
}

// Compares packed weights with the tensors they came from, padding included.
class Comparison {
 public:
  Comparison(const Tensors& tensors, const ModelConfig& config, kernels::Isa isa)
      : tensors_(tensors),
        kernels_(**kernels::kernels_for(isa)),
        head_dim_(config.head_dim),
        padded_head_dim_(round_up(config.head_dim, kernels::kHeadDimMultiple)) {}

  enum class Heads { kNone, kRows, kColumns };

  // Rows row_begin.. of `matrix` must hold the tensor, padded; returns the row behind it.
  int64_t expect(const device::WeightMatrix& held, int64_t row_begin, const std::string& name,
                 Heads heads, int64_t panel_step = 1) const {
    const PackedMatrix matrix = device::packed(held);
    const HandTensor& tensor = tensors_.at(name);
    const int64_t rows = tensor.shape[0];
    const int64_t columns = tensor.shape[1];
    std::vector<float> row(static_cast<size_t>(matrix.k));
    const int64_t padded_rows =
        heads == Heads::kRows ? rows / head_dim_ * padded_head_dim_ : round_up(rows, 32);
    for (int64_t n = 0; n < padded_rows; ++n) {
      const int64_t panel = n / kernels::kPanelColumns * panel_step;
      kernels_.unpack_row(matrix,
                          row_begin + panel * kernels::kPanelColumns + n % kernels::kPanelColumns,
                          row.data());
      const int64_t source_row = logical(n, rows, heads == Heads::kRows);
      for (int64_t k = 0; k < matrix.k; ++k) {
        const int64_t column = logical(k, columns, heads == Heads::kColumns);
        const float wanted =
            source_row < 0 || column < 0
                ? 0.0F
                : tensor.values[static_cast<size_t>(source_row * columns + column)];
        if (row[static_cast<size_t>(k)] != wanted) {
          ADD_FAILURE() << name << " [" << n << ", " << k << "] is " << row[static_cast<size_t>(k)]
                        << ", not " << wanted;
          return 0;
        }
      }
    }
    return row_begin + padded_rows;
  }

  int64_t expect_vector(const float* vector, int64_t begin, const std::string& name,
                        Heads heads) const {
    const HandTensor& tensor = tensors_.at(name);
    const int64_t size = tensor.shape[0];
    const int64_t padded =
        heads == Heads::kRows ? size / head_dim_ * padded_head_dim_ : round_up(size, 32);
    for (int64_t i = 0; i < padded; ++i) {
      const int64_t source = logical(i, size, heads == Heads::kRows);
      EXPECT_EQ(vector[begin + i], source < 0 ? 0.0F : tensor.values[static_cast<size_t>(source)])
          << name << " [" << i << "]";
    }
    return begin + padded;
  }

 private:
  [[nodiscard]] int64_t logical(int64_t i, int64_t size, bool heads) const {
    if (!heads) {
      return i < size ? i : -1;
    }
    return i % padded_head_dim_ < head_dim_
               ? i / padded_head_dim_ * head_dim_ + i % padded_head_dim_
               : -1;
  }

  const Tensors& tensors_;
  const kernels::Kernels& kernels_;
  int64_t head_dim_;
  int64_t padded_head_dim_;
};

void expect_weights(const Weights& weights, const Tensors& tensors, const ModelConfig& config,
                    kernels::Isa isa) {
  using Heads = Comparison::Heads;
  const Comparison comparison(tensors, config, isa);
  comparison.expect(weights.embedding, 0, "model.embed_tokens.weight", Heads::kNone);
  comparison.expect_vector(weights.final_norm, 0, "model.norm.weight", Heads::kNone);
  if (config.tied_embeddings) {
    EXPECT_EQ(weights.lm_head.data, weights.embedding.data);
  } else {
    comparison.expect(weights.lm_head, 0, "lm_head.weight", Heads::kNone);
  }
  ASSERT_EQ(weights.layers.size(), static_cast<size_t>(config.layers));
  for (int i = 0; i < config.layers; ++i) {
    const LayerWeights& layer = weights.layers[static_cast<size_t>(i)];
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    comparison.expect_vector(layer.attention_norm, 0, prefix + "input_layernorm.weight",
                             Heads::kNone);
    comparison.expect_vector(layer.mlp_norm, 0, prefix + "post_attention_layernorm.weight",
                             Heads::kNone);
    int64_t row = 0;
    int64_t bias = 0;
    for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
      const std::string tensor = prefix + "self_attn." + name;
      row = comparison.expect(layer.qkv, row, tensor + ".weight", Heads::kRows);
      if (config.qkv_bias) {
        bias = comparison.expect_vector(layer.qkv_bias, bias, tensor + ".bias", Heads::kRows);
      }
    }
    EXPECT_EQ(row, layer.qkv.n);
    EXPECT_EQ(layer.qkv_bias != nullptr, config.qkv_bias);
    comparison.expect(layer.output, 0, prefix + "self_attn.o_proj.weight", Heads::kColumns);
    row = comparison.expect(layer.gate_up, 0, prefix + "mlp.gate_proj.weight", Heads::kNone, 2);
    EXPECT_EQ(row, layer.gate_up.n / 2);
    comparison.expect(layer.gate_up, kernels::kPanelColumns, prefix + "mlp.up_proj.weight",
                      Heads::kNone, 2);
    comparison.expect(layer.down, 0, prefix + "mlp.down_proj.weight", Heads::kNone);
  }
}

class LoadWeights : public ::testing::TestWithParam<kernels::Isa> {};
INSTANTIATE_TEST_SUITE_P(EveryFamily, LoadWeights, ::testing::ValuesIn(kernels::available_isas()),
                         [](const auto& isa) { return std::string(kernels::isa_name(isa.param)); });

TEST_P(LoadWeights, KeepsEveryValueAndPadsWithZeros) {
  const auto device = cpu_device(GetParam());
  const ModelConfig config = odd_config();
  for (const ElementType source : {ElementType::kF32, ElementType::kBF16, ElementType::kF16}) {
    const Tensors tensors = tensors_of(config, source);
    const TempFolder folder;
    folder.write("model.safetensors", safetensors_of(listed(tensors)));
    for (const ElementType type : {ElementType::kF32, ElementType::kBF16}) {
      const auto weights = load_weights(folder.path(), config, *device,
                                        {.format = device::WeightFormat{.type = type}});
      ASSERT_TRUE(weights.ok()) << weights.error().message;
      EXPECT_EQ(weights->format, device::WeightFormat{.type = type});
      EXPECT_EQ(weights->numbers.activation, type);
      EXPECT_GE(weights->bytes(), weight_bytes(config, device::WeightFormat{.type = type}));
      expect_weights(*weights, tensors, config, GetParam());
    }
  }
}

TEST_P(LoadWeights, QuantisesTheLayersAndNothingElse) {
  const auto device = cpu_device(GetParam());
  const auto& kernels = **kernels::kernels_for(GetParam());
  const ModelConfig config = odd_config();
  const Tensors tensors = tensors_of(config, ElementType::kBF16);
  const TempFolder folder;
  folder.write("model.safetensors", safetensors_of(listed(tensors)));
  for (const Quantization quantization :
       {Quantization::kInt8, Quantization::kInt4, Quantization::kInt4Symmetric}) {
    const auto format = device::weight_format(ElementType::kBF16, quantization);
    const auto weights = load_weights(folder.path(), config, *device, {.format = format});
    ASSERT_TRUE(weights.ok()) << weights.error().message;
    EXPECT_EQ(weights->format, format);
    EXPECT_GE(weights->bytes(), weight_bytes(config, format));
    EXPECT_LT(weight_bytes(config, format), weight_bytes(config, {}));
    EXPECT_EQ(weights->embedding.format, device::WeightFormat{});
    EXPECT_EQ(weights->lm_head.format, device::WeightFormat{});
    const device::WeightMatrix& down = weights->layers[0].down;
    EXPECT_EQ(down.format, format);
    const std::vector<float>& values = tensors.at("model.layers.0.mlp.down_proj.weight").values;
    std::vector<float> row(static_cast<size_t>(down.k));
    kernels.unpack_row(device::packed(down), 1, row.data());
    const float* wanted = values.data() + config.intermediate;
    const float largest = std::abs(
        *std::max_element(wanted, wanted + config.intermediate,
                          [](float one, float other) { return std::abs(one) < std::abs(other); }));
    const float steps = quantization == Quantization::kInt8 ? 127.0F : 7.0F;
    for (int32_t i = 0; i < config.intermediate; ++i) {
      EXPECT_NEAR(row[static_cast<size_t>(i)], wanted[i], largest / steps);
    }
  }
}

TEST_P(LoadWeights, ReadsDataAtAnyAlignment) {
  const auto device = cpu_device(GetParam());
  ModelConfig config = odd_config();
  config.tied_embeddings = true;
  config.qkv_bias = false;
  const Tensors tensors = tensors_of(config, ElementType::kF32);
  for (const size_t padding : {1U, 2U, 3U}) {
    const TempFolder folder;
    folder.write("model.safetensors", safetensors_of(listed(tensors), padding));
    const auto weights = load_weights(folder.path(), config, *device, {.format = kAsBF16});
    ASSERT_TRUE(weights.ok()) << weights.error().message;
    expect_weights(*weights, tensors, config, GetParam());
  }
}

TEST_P(LoadWeights, TensorsLargerThanATileAreWhole) {
  const auto device = cpu_device(GetParam());
  ModelConfig config = odd_config();
  config.layers = 1;
  config.hidden = 1100;
  config.head_dim = 40;
  config.heads = 28;
  config.kv_heads = 28;
  config.vocabulary = 1900;
  const Tensors tensors = tensors_of(config, ElementType::kF32);
  const TempFolder folder;
  folder.write("model.safetensors", safetensors_of(listed(tensors)));
  int64_t last = 0;
  int64_t total = 0;
  LoadOptions options{.format = kAsBF16, .on_progress = [&](const LoadProgress& p) {
                        EXPECT_GE(p.bytes_done, last);
                        last = p.bytes_done;
                        total = p.bytes_total;
                      }};
  const auto weights = load_weights(folder.path(), config, *device, options);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  EXPECT_EQ(last, total);
  EXPECT_GT(total, int64_t{4} * 1900 * 1100 * 2);
  expect_weights(*weights, tensors, config, GetParam());
}

class BadWeights : public ::testing::Test {
 protected:
  // Loads the tensors as one file and returns the error's message.
  std::string refuse(const Tensors& tensors, const ModelConfig& config) {
    const TempFolder folder;
    folder.write("model.safetensors", safetensors_of(listed(tensors)));
    const auto weights = load_weights(folder.path(), config, *device_, {.format = kAsBF16});
    EXPECT_FALSE(weights.ok());
    return weights.ok() ? "" : weights.error().message;
  }

  std::unique_ptr<device::Device> device_ = cpu_device(kernels::Isa::kRef);
};

TEST_F(BadWeights, AMissingTensorIsNamed) {
  const ModelConfig config = odd_config();
  const Tensors good = tensors_of(config, ElementType::kBF16);
  for (const char* name : {"model.layers.1.mlp.down_proj.weight", "model.norm.weight",
                           "lm_head.weight", "model.layers.0.self_attn.k_proj.bias"}) {
    Tensors tensors = good;
    tensors.erase(name);
    EXPECT_THAT(refuse(tensors, config), AllOf(HasSubstr(name), HasSubstr("is missing")));
  }
}

TEST_F(BadWeights, AWrongShapeIsShownBesideTheRightOne) {
  const ModelConfig config = odd_config();
  Tensors tensors = tensors_of(config, ElementType::kBF16);
  tensors.at("model.layers.0.mlp.up_proj.weight").shape = {44, 52};
  EXPECT_THAT(refuse(tensors, config),
              AllOf(HasSubstr("model.safetensors: tensor 'model.layers.0.mlp.up_proj.weight'"),
                    HasSubstr("[44, 52]"), HasSubstr("[52, 44]")));
  tensors = tensors_of(config, ElementType::kBF16);
  tensors.at("model.norm.weight").shape = {1, 44};
  EXPECT_THAT(refuse(tensors, config), HasSubstr("[1, 44]"));
}

TEST_F(BadWeights, NotANumberIsFoundAndNamed) {
  const ModelConfig config = odd_config();
  for (const ElementType type : {ElementType::kF32, ElementType::kBF16, ElementType::kF16}) {
    for (const char* name : {"model.layers.1.self_attn.o_proj.weight", "model.norm.weight",
                             "model.layers.0.self_attn.q_proj.bias"}) {
      for (const float value :
           {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
            -std::numeric_limits<float>::infinity()}) {
        Tensors tensors = tensors_of(config, type);
        tensors.at(name).values.at(37) = value;
        EXPECT_THAT(refuse(tensors, config), AllOf(HasSubstr(name), HasSubstr("element 37 is")));
      }
    }
  }
}

TEST_F(BadWeights, AnUnknownBiasIsRefusedAndOtherExtrasAreNot) {
  ModelConfig config = odd_config();
  Tensors tensors = tensors_of(config, ElementType::kBF16);
  tensors["model.layers.0.self_attn.o_proj.bias"] = {
      "model.layers.0.self_attn.o_proj.bias", {44}, std::vector<float>(44), ElementType::kBF16};
  EXPECT_THAT(refuse(tensors, config), HasSubstr("o_proj.bias"));
  tensors.erase("model.layers.0.self_attn.o_proj.bias");
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {
      "model.layers.0.self_attn.rotary_emb.inv_freq", {5}, std::vector<float>(5)};
  const TempFolder folder;
  folder.write("model.safetensors", safetensors_of(listed(tensors)));
  EXPECT_TRUE(load_weights(folder.path(), config, *device_, {.format = kAsBF16}).ok());
}

TEST_F(BadWeights, ATypeThatIsNoWeightIsRefused) {
  ModelConfig config = odd_config();
  const TempFolder folder;
  std::string file = safetensors_of(listed(tensors_of(config, ElementType::kBF16)));
  folder.write("model.safetensors", file.replace(file.find("BF16"), 4, "XF16"));
  const auto weights = load_weights(folder.path(), config, *device_, {});
  ASSERT_FALSE(weights.ok());
  EXPECT_THAT(weights.error().message, AllOf(HasSubstr("is XF16"), HasSubstr("F32, F16 and BF16")));
}

TEST_F(BadWeights, AFormatThatTheDeviceDoesNotHaveIsRefused) {
  const TempFolder folder;
  for (const device::WeightFormat& format :
       {device::WeightFormat{.type = ElementType::kF16},
        device::WeightFormat{.type = ElementType::kBF16, .group = 32}}) {
    const auto weights = load_weights(folder.path(), odd_config(), *device_, {.format = format});
    ASSERT_FALSE(weights.ok());
    EXPECT_EQ(weights.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(weights.error().message, HasSubstr("use bfloat16 or float32"));
  }
}

TEST_F(BadWeights, TensorsMayComeFromAnySource) {
  const ModelConfig config = odd_config();
  const Tensors tensors = tensors_of(config, ElementType::kBF16);
  SourceInMemory source(tensors);
  const auto weights = load_weights(source, config, *device_, {});
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  expect_weights(*weights, tensors, config, device_->host().isa);
  source.readable_bytes = 100;
  const auto broken = load_weights(source, config, *device_, {});
  ASSERT_FALSE(broken.ok());
  EXPECT_THAT(broken.error().message, AllOf(HasSubstr("memory"), HasSubstr("cut short")));
  source.entry("model.norm.weight").quantization = Quantization::kInt8;
  const auto vector = load_weights(source, config, *device_, {});
  ASSERT_FALSE(vector.ok());
  EXPECT_THAT(vector.error().message, HasSubstr("'model.norm.weight' is a vector"));
}

// Has room for `budget` bytes.
class SmallDevice final : public reference::ForwardingDevice {
 public:
  SmallDevice(device::Device& inner, int64_t budget) : ForwardingDevice(inner), left_(budget) {}
  Result<std::unique_ptr<device::Memory>> allocate(const device::MemoryRequest& request) override {
    if (request.bytes > left_) {
      return Error{
          ErrorCode::kResourceExhausted,
          std::to_string(request.bytes) + " bytes asked, " + std::to_string(left_) + " left", ""};
    }
    left_ -= request.bytes;
    return ForwardingDevice::allocate(request);
  }

 private:
  int64_t left_;
};

TEST_F(BadWeights, RunningOutOfMemoryIsAnErrorWithTheBytes) {
  const ModelConfig config = odd_config();
  const TempFolder folder;
  folder.write("model.safetensors", safetensors_of(listed(tensors_of(config, ElementType::kF16))));
  SmallDevice small(*device_, weight_bytes(config, kAsF32) - 1);
  const auto weights = load_weights(folder.path(), config, small, {.format = kAsF32});
  ASSERT_FALSE(weights.ok());
  EXPECT_EQ(weights.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(weights.error().message,
              AllOf(HasSubstr(std::to_string(weight_bytes(config, kAsF32))), HasSubstr("left")));
}

TEST(FindNotFinite, FindsTheFirstAtEveryPlaceAndAlignment) {
  for (const ElementType type : {ElementType::kF32, ElementType::kBF16, ElementType::kF16}) {
    for (const int64_t size : {1, 255, 256, 257, 1000}) {
      for (int64_t at = 0; at<size; at += size> 300 ? 97 : 51) {
        std::vector<float> values(static_cast<size_t>(size), 1.5F);
        std::string bytes = " " + encode(values, type);
        const auto* data = reinterpret_cast<const std::byte*>(bytes.data()) + 1;
        EXPECT_FALSE(find_not_finite(data, size, type, ElementType::kBF16));
        values[static_cast<size_t>(at)] = -std::numeric_limits<float>::infinity();
        values.back() = std::numeric_limits<float>::quiet_NaN();
        bytes = " " + encode(values, type);
        data = reinterpret_cast<const std::byte*>(bytes.data()) + 1;
        EXPECT_EQ(find_not_finite(data, size, type, ElementType::kBF16), at);
      }
    }
  }
}

TEST(FindNotFinite, KnowsWhatRoundsToInfinity) {
  const float large = 3.4e38F;
  const auto* data = reinterpret_cast<const std::byte*>(&large);
  EXPECT_FALSE(find_not_finite(data, 1, ElementType::kF32, ElementType::kF32));
  EXPECT_EQ(find_not_finite(data, 1, ElementType::kF32, ElementType::kBF16), 0);
}

TEST(Stories260K, LoadsInBothTypes) {
  const char* shared = std::getenv("TANDEM_SHARED");
  const std::filesystem::path path =
      std::filesystem::path(shared != nullptr ? shared : "../shared") / "models/stories260K/hf";
  if (!std::filesystem::exists(path)) {
    const char* ci = std::getenv("CI");
    ASSERT_FALSE(ci != nullptr && std::string(ci) == "true") << path << " is not there";
    GTEST_SKIP() << path << " is not there; set TANDEM_SHARED";
  }
  const auto folder = open_model_folder(path);
  ASSERT_TRUE(folder.ok()) << folder.error().message;
  EXPECT_EQ(parameter_count(folder->config), 260032);
  EXPECT_EQ(folder->eos_token_ids, (std::vector<TokenId>{1, 2}));
  const auto device = cpu_device(kernels::available_isas().back());
  for (const ElementType type : {ElementType::kF32, ElementType::kBF16}) {
    const auto weights =
        load_weights(path, folder->config, *device, {.format = device::WeightFormat{.type = type}});
    ASSERT_TRUE(weights.ok()) << weights.error().message;
    EXPECT_EQ(weights->padded_head_dim, 32);
    EXPECT_EQ(weights->padded_intermediate, 192);
    EXPECT_EQ(weights->lm_head.data, weights->embedding.data);
  }
}

}  // namespace
}  // namespace tandem::model
