#include "model/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <string>

namespace tandem::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A good config.json with fields set (or, with an empty value, left out).
std::string config_with(const std::map<std::string, std::string>& changes) {
  std::map<std::string, std::string> fields = {
      {"architectures", R"(["LlamaForCausalLM"])"},
      {"hidden_size", "64"},
      {"intermediate_size", "172"},
      {"num_hidden_layers", "5"},
      {"num_attention_heads", "8"},
      {"vocab_size", "512"},
      {"max_position_embeddings", "256"},
      {"torch_dtype", R"("float32")"},
  };
  for (const auto& [key, value] : changes) {
    fields[key] = value;
  }
  std::string text = "{";
  for (const auto& [key, value] : fields) {
    if (!value.empty()) {
      text += (text.size() == 1 ? "\"" : ",\"") + key + "\":" + value;
    }
  }
  return text + "}";
}

TEST(ParseConfig, FillsWhatIsAbsent) {
  const auto config = parse_config(config_with({}));
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->architecture, Architecture::kLlama);
  EXPECT_EQ(config->kv_heads, 8);
  EXPECT_EQ(config->head_dim, 8);
  EXPECT_EQ(config->rope_theta, 10000.0);
  EXPECT_EQ(config->checkpoint_type, ElementType::kF32);
  EXPECT_FALSE(config->tied_embeddings);
  EXPECT_FALSE(config->qkv_bias);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(config->rope_scaling));
  EXPECT_EQ(config->stretched_positions, 256);
  EXPECT_FALSE(config->qk_norm);
  EXPECT_TRUE(config->eos_token_ids.empty());
  EXPECT_FALSE(config->bos_token_id);
}

TEST(ParseConfig, ReadsAQwen2ModelAndItsBias) {
  const auto config = parse_config(config_with({{"architectures", R"(["Qwen2ForCausalLM"])"},
                                                {"num_key_value_heads", "2"},
                                                {"rope_theta", "1000000"},
                                                {"tie_word_embeddings", "true"},
                                                {"torch_dtype", R"("bfloat16")"},
                                                {"use_sliding_window", "false"},
                                                {"sliding_window", "32768"},
                                                {"eos_token_id", "[3, 5]"},
                                                {"bos_token_id", "4"}}));
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->architecture, Architecture::kQwen2);
  EXPECT_TRUE(config->qkv_bias);
  EXPECT_TRUE(config->tied_embeddings);
  EXPECT_EQ(config->kv_heads, 2);
  EXPECT_EQ(config->rope_theta, 1e6);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(3, 5));
  EXPECT_EQ(config->bos_token_id, 4);
}

TEST(ParseConfig, EndTokensThatTheModelCannotMakeAreLeftOutWithAWarning) {
  const auto config = parse_config(config_with(
      {{"eos_token_id", "[1, 512, 1152921504606846976, \"x\", 5]"}, {"bos_token_id", "-1"}}));
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_THAT(config->eos_token_ids, ElementsAre(1, 5));
  EXPECT_FALSE(config->bos_token_id);
  ASSERT_EQ(config->warnings.size(), 4U);
  EXPECT_THAT(config->warnings[0], HasSubstr("config.json: eos_token_id: holds 512, but must be"));
  EXPECT_THAT(config->warnings[3], HasSubstr("bos_token_id: is -1"));
}

TEST(ParseConfig, ReadsLlama3RopeInEverySpelling) {
  const std::string inner = R"("factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
                            R"("original_max_position_embeddings":8192})";
  for (const auto& [key, text] :
       {std::pair(std::string("rope_scaling"), R"({"rope_type":"llama3",)" + inner),
        std::pair(std::string("rope_scaling"), R"({"type":"llama3",)" + inner),
        std::pair(std::string("rope_parameters"),
                  R"({"rope_theta":500000.0,"rope_type":"llama3",)" + inner)}) {
    const auto config = parse_config(config_with({{key, text}}));
    ASSERT_TRUE(config.ok()) << config.error().message;
    const auto* rope = std::get_if<Llama3Rope>(&config->rope_scaling);
    ASSERT_NE(rope, nullptr) << text;
    EXPECT_EQ(rope->factor, 8.0);
    EXPECT_EQ(rope->original_max_positions, 8192);
    EXPECT_EQ(config->rope_theta, key == "rope_parameters" ? 500000.0 : 10000.0);
  }
  for (const char* text : {"null", R"({"rope_type":"default"})", R"({"type":"default"})", "{}"}) {
    const auto config = parse_config(config_with({{"rope_scaling", text}}));
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_TRUE(std::holds_alternative<std::monostate>(config->rope_scaling));
  }
}

TEST(ParseConfig, ReadsAQwen3ModelAndTheNormsOfItsHeads) {
  const auto config = parse_config(config_with({{"architectures", R"(["Qwen3ForCausalLM"])"},
                                                {"num_key_value_heads", "2"},
                                                {"use_sliding_window", "false"},
                                                {"sliding_window", "null"},
                                                {"max_window_layers", "3"}}));
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->architecture, Architecture::kQwen3);
  EXPECT_TRUE(config->qk_norm);
  EXPECT_FALSE(config->qkv_bias);
  EXPECT_EQ(config->head_dim, 128);  // its own default, not hidden / heads
  const auto by_type = parse_config(config_with(
      {{"architectures", ""}, {"model_type", R"("qwen3")"}, {"attention_bias", "true"}}));
  ASSERT_TRUE(by_type.ok()) << by_type.error().message;
  EXPECT_EQ(by_type->architecture_name, "Qwen3ForCausalLM");
  EXPECT_TRUE(by_type->qkv_bias);
}

TEST(ParseConfig, ReadsLinearAndDynamicRopeAndHowFarTheyStretch) {
  for (const std::string& type : {std::string("linear"), std::string("dynamic")}) {
    for (const char* key : {"rope_type", "type"}) {
      const auto config = parse_config(
          config_with({{"rope_scaling", fmt::format(R"({{"{}":"{}","factor":2.5}})", key, type)}}));
      ASSERT_TRUE(config.ok()) << config.error().message;
      EXPECT_EQ(std::holds_alternative<LinearRope>(config->rope_scaling), type == "linear");
      EXPECT_EQ(std::holds_alternative<DynamicRope>(config->rope_scaling), type == "dynamic");
      EXPECT_EQ(config->max_positions, 256);
      EXPECT_EQ(config->stretched_positions, 640);
      EXPECT_THAT(rope_scaling_text(*config), HasSubstr(type + " scaling by 2.5"));
    }
  }
}

TEST(ParseConfig, ReadsYarnAndFillsWhatIsAbsentAsTransformersDoes) {
  const auto yarn_of = [](const std::map<std::string, std::string>& changes) {
    const auto config = parse_config(config_with(changes));
    EXPECT_TRUE(config.ok()) << config.error().message;
    return std::get<YarnRope>(config->rope_scaling);
  };
  const YarnRope plain = yarn_of(
      {{"rope_scaling", R"({"type":"yarn","factor":4.0,"original_max_position_embeddings":64})"}});
  EXPECT_EQ(plain.factor, 4.0);
  EXPECT_EQ(plain.original_max_positions, 64);
  EXPECT_EQ(plain.beta_fast, 32.0);
  EXPECT_EQ(plain.beta_slow, 1.0);
  EXPECT_TRUE(plain.truncate);
  EXPECT_DOUBLE_EQ(plain.attention_factor, 0.1 * std::log(4.0) + 1.0);
  // Without a factor: how often the original context goes into the configured one.
  EXPECT_EQ(yarn_of({{"rope_parameters",
                      R"({"rope_type":"yarn","original_max_position_embeddings":32})"}})
                .factor,
            8.0);
  // The original length beside the object counts before the one inside.
  EXPECT_EQ(yarn_of({{"original_max_position_embeddings", "128"},
                     {"rope_scaling",
                      R"({"type":"yarn","factor":2,"original_max_position_embeddings":64})"}})
                .original_max_positions,
            128);
  EXPECT_EQ(yarn_of({{"rope_scaling", R"({"type":"yarn","factor":2})"}}).original_max_positions,
            256);
  const YarnRope full = yarn_of(
      {{"rope_scaling", R"({"type":"yarn","factor":4,"beta_fast":16,"beta_slow":2,"mscale":1.0,)"
                        R"("mscale_all_dim":0.5,"truncate":false})"}});
  EXPECT_EQ(full.beta_fast, 16.0);
  EXPECT_EQ(full.beta_slow, 2.0);
  EXPECT_FALSE(full.truncate);
  EXPECT_DOUBLE_EQ(full.attention_factor,
                   (0.1 * std::log(4.0) + 1.0) / (0.05 * std::log(4.0) + 1.0));
  EXPECT_EQ(yarn_of({{"rope_scaling", R"({"type":"yarn","factor":4,"attention_factor":1.5})"}})
                .attention_factor,
            1.5);
}

TEST(ParseConfig, YarnStretchesTheOriginalContext) {
  const auto config = parse_config(
      config_with({{"rope_scaling",
                    R"({"rope_type":"yarn","factor":8,"original_max_position_embeddings":64})"}}));
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->stretched_positions, 512);
  EXPECT_EQ(rope_scaling_text(*config), "yarn scaling by 8 from 64 positions");
}

TEST(ParseConfig, TheThetaInsideAndTheOldObjectCountFirst) {
  const auto config = parse_config(
      config_with({{"rope_theta", "20000"},
                   {"rope_scaling", R"({"type":"linear","factor":2.0,"rope_theta":30000.0})"},
                   {"rope_parameters", R"({"rope_type":"default","rope_theta":40000.0})"}}));
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->rope_theta, 30000.0);
  EXPECT_TRUE(std::holds_alternative<LinearRope>(config->rope_scaling));
}

TEST(ParseConfig, ReadsNewNamesOfTheElementType) {
  const auto config =
      parse_config(config_with({{"torch_dtype", ""}, {"dtype", R"("torch.float16")"}}));
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->checkpoint_type, ElementType::kF16);
}

TEST(ParseConfig, AHeadDimOfItsOwnNeedNotDivideTheHiddenSize) {
  const auto config = parse_config(config_with({{"head_dim", "128"}, {"hidden_size", "100"}}));
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->head_dim, 128);
}

struct BadConfig {
  std::string key;
  std::string value;
  std::string says;
};

TEST(ParseConfig, EveryLayerOfAMistralHasTheWindow) {
  const auto mistral = [](const std::string& window) {
    const auto config = parse_config(config_with({{"architectures", R"(["MistralForCausalLM"])"},
                                                  {"sliding_window", window},
                                                  {"head_dim", "16"},
                                                  {"attention_bias", "true"},
                                                  {"max_position_embeddings", "32768"}}));
    EXPECT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->head_dim, 16);
    EXPECT_FALSE(config->qkv_bias);
    return config->windows;
  };
  EXPECT_EQ(mistral("100"), std::vector<int32_t>(5, 100));
  EXPECT_EQ(mistral(""), std::vector<int32_t>(5, 4096));  // not given
  EXPECT_TRUE(mistral("null").empty());
  EXPECT_TRUE(mistral("32768").empty());  // never filled
}

TEST(ParseConfig, QwenLayersHaveAWindowWhereItIsSwitchedOn) {
  const auto qwen = [](std::map<std::string, std::string> changes) {
    changes.emplace("architectures", R"(["Qwen3ForCausalLM"])");
    changes.emplace("sliding_window", "100");
    const auto config = parse_config(config_with(changes));
    EXPECT_TRUE(config.ok()) << config.error().message;
    return config->windows;
  };
  EXPECT_TRUE(qwen({}).empty());
  EXPECT_TRUE(qwen({{"use_sliding_window", "false"}, {"max_window_layers", "0"}}).empty());
  EXPECT_THAT(qwen({{"use_sliding_window", "true"}, {"max_window_layers", "3"}}),
              ElementsAre(0, 0, 0, 100, 100));
  EXPECT_TRUE(qwen({{"use_sliding_window", "true"}, {"max_window_layers", "5"}}).empty());
  EXPECT_TRUE(qwen({{"use_sliding_window", "true"}}).empty());  // from layer 28 on
  EXPECT_TRUE(
      qwen({{"use_sliding_window", "true"}, {"sliding_window", "null"}, {"max_window_layers", "0"}})
          .empty());
  EXPECT_THAT(qwen({{"use_sliding_window", "true"},
                    {"max_window_layers", "0"},
                    {"layer_types", R"(["sliding_attention","full_attention","full_attention",)"
                                    R"("sliding_attention","full_attention"])"}}),
              ElementsAre(100, 0, 0, 100, 0));
}

TEST(ParseConfig, NamesFieldCauseAndCureOfEveryBadField) {
  const std::vector<BadConfig> cases = {
      {"architectures", R"(["GPT2LMHeadModel"])", "supported are LlamaForCausalLM"},
      {"architectures", "", "is missing"},
      {"architectures", "7", "must be a string or a list of strings"},
      {"hidden_size", "", "is missing"},
      {"hidden_size", "0", "from 1 to"},
      {"hidden_size", "-64", "from 1 to"},
      {"hidden_size", "1152921504606846976", "from 1 to"},
      {"hidden_size", "1e300", "from 1 to"},
      {"hidden_size", "64.5", "from 1 to"},
      {"hidden_size", "18446744073709551615", "from 1 to"},
      {"hidden_size", "\"64\"", "from 1 to"},
      {"hidden_size", "true", "from 1 to"},
      {"hidden_size", "[64]", "from 1 to"},
      {"num_hidden_layers", "0", "from 1 to"},
      {"num_hidden_layers", "1000000000", "from 1 to"},
      {"intermediate_size", "1152921504606846976", "from 1 to"},
      {"vocab_size", "0", "from 1 to"},
      {"max_position_embeddings", "-1", "from 1 to"},
      {"num_attention_heads", "7", "must divide hidden_size (64)"},
      {"num_attention_heads", "64", "even number"},
      {"num_key_value_heads", "3", "must divide num_attention_heads (8)"},
      {"num_key_value_heads", "16", "must divide num_attention_heads (8)"},
      {"head_dim", "7", "even number"},
      {"head_dim", "1", "from 2 to"},
      {"head_dim", "4096", "from 2 to"},
      {"head_dim", "514", "from 2 to 512"},
      {"rms_norm_eps", "-1", "from 0 to"},
      {"rms_norm_eps", "\"x\"", "a number"},
      {"rope_theta", "0", "from 1 to"},
      {"rope_scaling", R"({"type":"longrope","factor":2.0})", "supported are default, linear"},
      {"rope_scaling", R"({"rope_type":"mrope"})", "'mrope' is not supported"},
      {"rope_scaling", R"({"type":"linear"})", "rope_scaling.factor: is missing"},
      {"rope_scaling", R"({"type":"linear","factor":0.5})", "from 1 to"},
      {"rope_scaling", R"({"type":"dynamic"})", "is missing"},
      {"rope_scaling", R"({"type":"dynamic","factor":1e300})", "from 1 to"},
      {"rope_scaling", R"({"type":"yarn","factor":"4"})", "a number"},
      {"rope_scaling", R"({"type":"yarn","factor":4,"beta_fast":1,"beta_slow":2})", "beta_slow"},
      {"rope_scaling", R"({"type":"yarn","factor":4,"truncate":1})", "true or false"},
      {"rope_scaling", R"({"type":"yarn","original_max_position_embeddings":0})", "from 1 to"},
      {"rope_scaling", R"({"type":"yarn","factor":4,"attention_factor":-1})", "from 0 to"},
      {"rope_theta", R"(1,"rope_scaling":{"type":"yarn","factor":4})", "yarn needs more"},
      {"rope_parameters", R"({"full_attention":{"rope_type":"default"}})", "of their own"},
      {"rope_parameters", R"({"partial_rotary_factor":0.5})", "is not 1"},
      {"rope_scaling", R"({"rope_type":"llama3","factor":8.0})", "is missing"},
      {"rope_scaling", R"("llama3")", "must be an object"},
      {"hidden_act", R"("gelu")", "only silu"},
      {"mlp_bias", "true", "not supported"},
      {"mlp_bias", "1", "true or false"},
      {"use_sliding_window", "true", "has no sliding window"},
      {"sliding_window", "0", "from 1 to"},
      {"sliding_window", "-1", "from 1 to"},
      {"max_window_layers", "-1", "from 0 to"},
      {"layer_types", R"(["full_attention"])", "names 1 layers"},
      {"layer_types", R"(["full_attention","chunked","chunked","chunked","chunked"])",
       "supported are full_attention"},
      {"layer_types",
       R"(["full_attention","full_attention","full_attention","full_attention","sliding_attention"])",
       "switches on no sliding_window"},
      {"partial_rotary_factor", "0.5", "not supported"},
      {"quantization_config", R"({"quant_method":"gptq"})", "bits: is missing"},
      {"torch_dtype", R"("float8_e4m3fn")", "supported are float32"},
      {"tie_word_embeddings", "\"yes\"", "true or false"},
  };
  for (const BadConfig& bad : cases) {
    const auto config = parse_config(config_with({{bad.key, bad.value}}));
    ASSERT_FALSE(config.ok()) << bad.key << " = " << bad.value;
    EXPECT_THAT(config.error().message,
                AllOf(HasSubstr("config.json: "), HasSubstr(bad.key), HasSubstr(bad.says)))
        << bad.key << " = " << bad.value;
  }
}

TEST(ParseConfig, RefusesTextThatIsNoConfig) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"),
        std::string("{\"a\":\"\xff\"}"), std::string("{} {}"), std::string(100000, '['),
        std::string("version https://example.org/spec")}) {
    const auto config = parse_config(text);
    ASSERT_FALSE(config.ok()) << text.substr(0, 20);
    EXPECT_THAT(config.error().message, HasSubstr("config.json: "));
    EXPECT_LT(config.error().message.size(), 500U);
  }
}

TEST(RopeInverseFrequencies, FollowTheFormula) {
  ModelConfig config;
  config.head_dim = 8;
  config.rope_theta = 10000.0;
  const std::vector<double> plain = rope_inverse_frequencies(config, 0);
  ASSERT_EQ(plain.size(), 4U);
  EXPECT_DOUBLE_EQ(plain[0], 1.0);
  EXPECT_NEAR(plain[1], 0.1, 1e-15);
  EXPECT_NEAR(plain[3], 0.001, 1e-17);
}

TEST(RopeInverseFrequencies, Llama3KeepsHighLowersLowAndBlendsBetween) {
  ModelConfig config;
  config.head_dim = 128;
  config.rope_theta = 500000.0;
  const std::vector<double> plain = rope_inverse_frequencies(config, 0);
  config.rope_scaling = Llama3Rope{};
  const std::vector<double> scaled = rope_inverse_frequencies(config, 0);
  EXPECT_DOUBLE_EQ(scaled.front(), plain.front());
  EXPECT_DOUBLE_EQ(scaled.back(), plain.back() / 8.0);
  bool blended = false;
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_LE(scaled[i], plain[i]);
    EXPECT_GE(scaled[i], plain[i] / 8.0 * (1 - 1e-12));
    blended = blended || (scaled[i] < plain[i] && scaled[i] > plain[i] / 8.0 * 1.001);
  }
  EXPECT_TRUE(blended);
}

TEST(RopeInverseFrequencies, LinearDividesAll) {
  ModelConfig config;
  config.head_dim = 16;
  const std::vector<double> plain = rope_inverse_frequencies(config, 0);
  config.rope_scaling = LinearRope{.factor = 4.0};
  const std::vector<double> scaled = rope_inverse_frequencies(config, 0);
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_DOUBLE_EQ(scaled[i], plain[i] / 4.0);
  }
}

TEST(RopeInverseFrequencies, DynamicChangesNothingUpToTheKnownPositionsAndTheBaseBeyond) {
  ModelConfig config;
  config.head_dim = 16;
  config.max_positions = 1000;
  const std::vector<double> plain = rope_inverse_frequencies(config, 0);
  config.rope_scaling = DynamicRope{.factor = 2.0};
  EXPECT_EQ(rope_inverse_frequencies(config, 1000), plain);
  EXPECT_EQ(rope_inverse_frequencies(config, 10), plain);
  const std::vector<double> scaled = rope_inverse_frequencies(config, 3000);
  EXPECT_EQ(scaled.front(), 1.0);
  // 2 * 3000 / 1000 - 1 = 5, and the last pair's exponent is 14 / 16 of 16 / 14.
  EXPECT_NEAR(scaled.back() / plain.back(), 1.0 / 5.0, 1e-12);
}

TEST(RopeInverseFrequencies, YarnKeepsHighDividesLowAndBlendsBetween) {
  ModelConfig config;
  config.head_dim = 128;
  config.rope_theta = 1e6;
  const std::vector<double> plain = rope_inverse_frequencies(config, 0);
  config.rope_scaling = YarnRope{.factor = 4.0, .original_max_positions = 32768};
  const std::vector<double> scaled = rope_inverse_frequencies(config, 0);
  // Bounds: floor(23.59..) = 23 and ceil(39.65..) = 40.
  EXPECT_DOUBLE_EQ(scaled[23], plain[23]);
  EXPECT_LT(scaled[24], plain[24]);
  EXPECT_GT(scaled[39], plain[39] / 4.0 * (1 + 1e-9));
  EXPECT_DOUBLE_EQ(scaled[40], plain[40] / 4.0);
  EXPECT_DOUBLE_EQ(scaled.back(), plain.back() / 4.0);
}

TEST(ModelSize, CountsParametersAndKvBytes) {
  ModelConfig tiny_llama;
  tiny_llama.layers = 22;
  tiny_llama.hidden = 2048;
  tiny_llama.intermediate = 5632;
  tiny_llama.heads = 32;
  tiny_llama.kv_heads = 4;
  tiny_llama.head_dim = 64;
  tiny_llama.vocabulary = 32000;
  EXPECT_EQ(parameter_count(tiny_llama), 1100048384);
  EXPECT_EQ(kv_bytes_per_token(tiny_llama, ElementType::kBF16), 22 * 2 * 4 * 64 * 2);

  ModelConfig normed = tiny_llama;
  normed.qk_norm = true;
  EXPECT_EQ(parameter_count(normed), 1100048384 + 22 * 2 * 64);

  ModelConfig padded = tiny_llama;
  padded.head_dim = 8;
  EXPECT_EQ(kv_bytes_per_token(padded, ElementType::kF32), 22 * 2 * 4 * 32 * 4);
}

}  // namespace
}  // namespace tandem::model
