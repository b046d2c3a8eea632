#include "model/config.h"

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
  EXPECT_FALSE(config->llama3_rope);
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
    ASSERT_TRUE(config->llama3_rope) << text;
    EXPECT_EQ(config->llama3_rope->factor, 8.0);
    EXPECT_EQ(config->llama3_rope->original_max_positions, 8192);
    EXPECT_EQ(config->rope_theta, key == "rope_parameters" ? 500000.0 : 10000.0);
  }
  for (const char* text : {"null", R"({"rope_type":"default"})", R"({"type":"default"})", "{}"}) {
    const auto config = parse_config(config_with({{"rope_scaling", text}}));
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_FALSE(config->llama3_rope);
  }
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
      {"rms_norm_eps", "-1", "from 0 to"},
      {"rms_norm_eps", "\"x\"", "a number"},
      {"rope_theta", "0", "from 1 to"},
      {"rope_scaling", R"({"type":"linear","factor":2.0})", "'linear' is not supported"},
      {"rope_scaling", R"({"rope_type":"yarn","factor":4.0})", "'yarn' is not supported"},
      {"rope_scaling", R"({"rope_type":"llama3","factor":8.0})", "is missing"},
      {"rope_scaling", R"("llama3")", "must be an object"},
      {"hidden_act", R"("gelu")", "only silu"},
      {"mlp_bias", "true", "not supported"},
      {"mlp_bias", "1", "true or false"},
      {"use_sliding_window", "true", "not supported"},
      {"layer_types", R"(["sliding_attention"])", "only full_attention"},
      {"partial_rotary_factor", "0.5", "not supported"},
      {"quantization_config", R"({"quant_method":"gptq"})", "quantised"},
      {"torch_dtype", R"("float8_e4m3fn")", "supported are float32"},
      {"tie_word_embeddings", "\"yes\"", "true or false"},
      {"eos_token_id", "512", "from 0 to 511"},
      {"eos_token_id", "[1, -1]", "from 0 to 511"},
      {"eos_token_id", "1152921504606846976", "from 0 to 511"},
      {"bos_token_id", "\"<s>\"", "from 0 to 511"},
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
  const std::vector<double> plain = rope_inverse_frequencies(config);
  ASSERT_EQ(plain.size(), 4U);
  EXPECT_DOUBLE_EQ(plain[0], 1.0);
  EXPECT_NEAR(plain[1], 0.1, 1e-15);
  EXPECT_NEAR(plain[3], 0.001, 1e-17);
}

TEST(RopeInverseFrequencies, Llama3KeepsHighLowersLowAndBlendsBetween) {
  ModelConfig config;
  config.head_dim = 128;
  config.rope_theta = 500000.0;
  const std::vector<double> plain = rope_inverse_frequencies(config);
  config.llama3_rope = Llama3Rope{};
  const std::vector<double> scaled = rope_inverse_frequencies(config);
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

  ModelConfig padded = tiny_llama;
  padded.head_dim = 8;
  EXPECT_EQ(kv_bytes_per_token(padded, ElementType::kF32), 22 * 2 * 4 * 32 * 4);
}

}  // namespace
}  // namespace tandem::model
