#include "model/quantization_config.h"

#include <gmock/gmock.h>

#include "model/json_fields.h"

namespace tandem::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Parsed {
  Result<std::optional<QuantizationConfig>> config;
  std::vector<std::string> warnings;
};

Parsed parse(const std::string& quantization, const std::string& key = "quantization_config") {
  const Result<JsonFields> fields =
      JsonFields::parse("config.json", "{\"" + key + "\":" + quantization + "}");
  EXPECT_TRUE(fields.ok()) << fields.error().message;
  std::vector<std::string> warnings;
  Result<std::optional<QuantizationConfig>> config = parse_quantization_config(*fields, warnings);
  return {std::move(config), std::move(warnings)};
}

QuantizationConfig parsed(const std::string& quantization) {
  const Parsed parsed = parse(quantization);
  EXPECT_TRUE(parsed.config.ok()) << parsed.config.error().message;
  EXPECT_THAT(parsed.warnings, IsEmpty());
  return parsed.config.ok() && *parsed.config ? **parsed.config : QuantizationConfig{};
}

auto scheme(int32_t bits, bool symmetric, int64_t group_size) {
  return AllOf(::testing::Field(&QuantizationScheme::bits, bits),
               ::testing::Field(&QuantizationScheme::symmetric, symmetric),
               ::testing::Field(&QuantizationScheme::group_size, group_size));
}

// One group of compressed-tensors, with these weights.
std::string compressed(const std::string& weights, const std::string& more = "",
                       const std::string& of_group = "") {
  return R"({"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":)"
         R"({"group_0":{"targets":["Linear"],"weights":{)" +
         weights + "}" + of_group + "}}" + more + "}";
}

const std::string kInt4 =
    R"("num_bits":4,"type":"int","symmetric":true,"strategy":"group","group_size":128)";

TEST(QuantizationConfig, ReadsGptq) {
  const auto first =
      parsed(R"({"quant_method":"gptq","bits":4,"group_size":128,"desc_act":false,"sym":true})");
  EXPECT_EQ(first.method, QuantizationMethod::kGptq);
  EXPECT_TRUE(first.zeros_minus_one);
  EXPECT_THAT(first.schemes, ElementsAre(scheme(4, true, 128)));
  const auto second = parsed(
      R"({"quant_method":"gptq","bits":8,"group_size":-1,"sym":false,"checkpoint_format":"gptq_v2"})");
  EXPECT_FALSE(second.zeros_minus_one);
  EXPECT_THAT(second.schemes, ElementsAre(scheme(8, false, -1)));
}

TEST(QuantizationConfig, ReadsRulesForSingleLayersOfGptq) {
  const auto config = parsed(
      R"({"quant_method":"gptq","bits":4,"group_size":128,"dynamic":)"
      R"({"-:.*down.*":{},"+:.*up.*":{"bits":8,"group_size":32},".*q_proj":{"sym":false}}})");
  EXPECT_THAT(config.schemes,
              ElementsAre(scheme(4, true, 128), scheme(8, true, 32), scheme(4, false, 128)));
}

TEST(QuantizationConfig, ReadsAwqUnderBothNames) {
  const auto hub = parsed(
      R"({"quant_method":"awq","bits":4,"group_size":64,"zero_point":true,"version":"gemm"})");
  EXPECT_EQ(hub.method, QuantizationMethod::kAwq);
  EXPECT_THAT(hub.schemes, ElementsAre(scheme(4, false, 64)));
  const auto own = parsed(R"({"quant_method":"awq","w_bit":4,"q_group_size":32,"version":"GEMM"})");
  EXPECT_THAT(own.schemes, ElementsAre(scheme(4, false, 32)));
}

TEST(QuantizationConfig, ReadsCompressedTensors) {
  const auto groups = parsed(compressed(kInt4));
  EXPECT_EQ(groups.method, QuantizationMethod::kCompressedTensors);
  EXPECT_THAT(groups.schemes, ElementsAre(scheme(4, true, 128)));
  const auto channel = parsed(compressed(R"("num_bits":8,"symmetric":false,"strategy":"channel")"));
  EXPECT_THAT(channel.schemes, ElementsAre(scheme(8, false, -1)));
  const auto mixed =
      parsed(R"({"quant_method":"compressed-tensors","format":"mixed-precision","config_groups":{)"
             R"("a":{"format":"pack-quantized","weights":{"num_bits":4,"group_size":32}},)"
             R"("b":{"format":"int-quantized","weights":{"num_bits":8,"strategy":"channel"}}}})");
  EXPECT_THAT(mixed.schemes, ElementsAre(scheme(4, true, 32), scheme(8, true, -1)));
}

TEST(QuantizationConfig, ReadsItsOlderName) {
  const Parsed older = parse(compressed(kInt4), "compression_config");
  ASSERT_TRUE(older.config.ok() && *older.config);
  EXPECT_THAT((*older.config)->schemes, ElementsAre(scheme(4, true, 128)));
}

TEST(QuantizationConfig, IsToldInWords) {
  EXPECT_EQ(quantization_text(parsed(compressed(kInt4))),
            "compressed-tensors, 4 bits in groups of 128, symmetric");
  EXPECT_EQ(quantization_text(
                parsed(R"({"quant_method":"gptq","bits":8,"group_size":-1,"sym":false,"dynamic":)"
                       R"({"x":{"bits":4}}})")),
            "gptq, 8 bits with a scale for each row, with zero points or 4 bits with a scale for "
            "each row, with zero points");
}

TEST(QuantizationConfig, IsAbsentWhereWeightsAreNotCompressed) {
  for (const char* text :
       {"null", R"({"quant_method":"compressed-tensors","format":"dense","config_groups":{}})"}) {
    const Parsed none = parse(text);
    ASSERT_TRUE(none.config.ok()) << none.config.error().message;
    EXPECT_FALSE(none.config->has_value());
  }
}

TEST(QuantizationConfig, WarnsOfActivationsAndKvThatAreNotQuantised) {
  const Parsed parsed = parse(compressed(
      R"("num_bits":8,"strategy":"channel")", R"(,"kv_cache_scheme":{"num_bits":8})",
      R"(,"input_activations":{"num_bits":8,"dynamic":true},"output_activations":null)"));
  ASSERT_TRUE(parsed.config.ok()) << parsed.config.error().message;
  EXPECT_THAT(
      parsed.warnings,
      ElementsAre(AllOf(HasSubstr("quantization_config.config_groups.group_0.input_activations"),
                        HasSubstr("activations stay bfloat16")),
                  HasSubstr("quantization_config.kv_cache_scheme: is not computed")));
}

TEST(QuantizationConfig, RefusesTheRestByFieldValueAndCure) {
  const auto gptq = [](const std::string& more) {
    return R"({"quant_method":"gptq","bits":4,"group_size":128)" + more + "}";
  };
  const auto awq = [](const std::string& more) {
    return R"({"quant_method":"awq","bits":4,"group_size":128)" + more + "}";
  };
  const struct {
    std::string text;
    const char* names;
    const char* says;
  } cases[] = {
      {"[]", "quantization_config", "must be an object"},
      {"{}", "quant_method", "is missing; supported are gptq, awq"},
      {R"({"quant_method":7})", "quant_method", "must be a string"},
      {R"({"quant_method":"fp8"})", "quant_method", "'fp8' is not supported"},
      {R"({"quant_method":"bitsandbytes","load_in_4bit":true})", "quant_method", "GGUF file"},
      {R"({"quant_method":"gptq","bits":3,"group_size":128})", "bits", "is 3; supported are 4 and"},
      {R"({"quant_method":"gptq","bits":2,"group_size":128})", "bits", "use the original"},
      {R"({"quant_method":"gptq","bits":"4","group_size":128})", "bits", "must be an integer"},
      {R"({"quant_method":"gptq","bits":4})", "group_size", "is missing"},
      {R"({"quant_method":"gptq","bits":4,"group_size":16})", "group_size", "multiples of 32"},
      {R"({"quant_method":"gptq","bits":4,"group_size":0})", "group_size", "multiples of 32"},
      {R"({"quant_method":"gptq","bits":4,"group_size":-2})", "group_size", "from -1 to"},
      {gptq(R"(,"checkpoint_format":"marlin")"), "checkpoint_format", "'marlin' is not supported"},
      {gptq(R"(,"format":"gptq_p")"), "format", "supported is gptq and gptq_v2"},
      {gptq(R"(,"is_marlin_format":true)"), "is_marlin_format", "is set"},
      {gptq(R"(,"pack_dtype":"int64")"), "pack_dtype", "'int64'"},
      {gptq(R"(,"rotation":"hadamard")"), "rotation", "is set"},
      {gptq(R"(,"sym":"yes")"), "sym", "true or false"},
      {gptq(R"(,"dynamic":{"+:x":{"bits":2}})"), "dynamic.+:x.bits", "is 2"},
      {awq(R"(,"version":"gemv")"), "version", "'gemv' is not supported; supported is gemm"},
      {awq(R"(,"zero_point":false)"), "zero_point", "is false"},
      {R"({"quant_method":"awq","bits":8,"group_size":128})", "bits", "supported are 4 bits"},
      {R"({"quant_method":"compressed-tensors","format":"pack-quantized"})", "config_groups",
       "1 to 256 groups"},
      {compressed(R"("num_bits":8,"type":"float","strategy":"channel")"), "weights.type",
       "'float' is not supported"},
      {compressed(R"("num_bits":4,"strategy":"block")"), "strategy", "'block'"},
      {compressed(R"("num_bits":4,"strategy":"tensor")"), "strategy", "'tensor'"},
      {compressed(R"("num_bits":4)"), "strategy", "is missing"},
      {compressed(R"("num_bits":4,"strategy":"group")"), "group_size", "is missing"},
      {compressed(kInt4, R"(,"sparsity_config":{"format":"sparse-24-bitmask"})"),
       "sparsity_config.format", "'sparse-24-bitmask'"},
      {compressed(kInt4, R"(,"transform_config":{"config_groups":{}})"), "transform_config",
       "is set"},
      {compressed(kInt4, "", R"(,"format":"marlin-24")"), "group_0.format", "'marlin-24'"},
      {R"({"quant_method":"compressed-tensors","format":"float-quantized","config_groups":{"a":{}}})",
       "format", "'float-quantized'"},
      {R"({"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{"a":{}}})",
       "config_groups", "names no weights"},
      {R"({"quant_method":"compressed-tensors","config_groups":{"a":null}})", "config_groups.a",
       "is null"},
  };
  for (const auto& bad : cases) {
    const Parsed refused = parse(bad.text);
    ASSERT_FALSE(refused.config.ok()) << bad.text;
    EXPECT_THAT(refused.config.error().message, AllOf(HasSubstr("config.json: quantization_config"),
                                                      HasSubstr(bad.names), HasSubstr(bad.says)))
        << bad.text;
  }
}

TEST(QuantizationConfig, RefusesTwo) {
  const Result<JsonFields> fields =
      JsonFields::parse("config.json", R"({"quantization_config":{},"compression_config":{}})");
  std::vector<std::string> warnings;
  const auto both = parse_quantization_config(*fields, warnings);
  ASSERT_FALSE(both.ok());
  EXPECT_THAT(both.error().message, HasSubstr("as well as quantization_config"));
}

}  // namespace
}  // namespace tandem::model
