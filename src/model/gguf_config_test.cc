#include "model/gguf_config.h"

#include <gmock/gmock.h>

#include "gguf/test_support.h"
#include "model/model_folder.h"
#include "model/test_support.h"

namespace tandem::model {
namespace {

using gguf::FileBuilder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A Llama of two layers without tensors but the embedding.
FileBuilder llama(const std::string& name = "llama") {
  FileBuilder file;
  file.string("general.architecture", name);
  file.integer(name + ".block_count", 2).integer(name + ".context_length", 256);
  file.integer(name + ".embedding_length", 32).integer(name + ".feed_forward_length", 48);
  file.integer(name + ".attention.head_count", 4).integer(name + ".attention.head_count_kv", 2);
  file.number(name + ".attention.layer_norm_rms_epsilon", 1e-5F);
  file.number(name + ".rope.freq_base", 500000.0F);
  file.floats("token_embd.weight", {10, 32}, std::vector<float>(320));
  return file;
}

class GgufConfig : public ::testing::Test {
 protected:
  Result<ModelFolder> open(const FileBuilder& file) {
    folder_.write("m.gguf", file.bytes());
    return open_model_folder(folder_.path() / "m.gguf");
  }
  std::string error_of(const FileBuilder& file) {
    const Result<ModelFolder> opened = open(file);
    return opened.ok() ? "no error" : opened.error().message;
  }

 private:
  TempFolder folder_;
};

TEST_F(GgufConfig, ReadsTheShape) {
  const Result<ModelFolder> opened = open(llama());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const ModelConfig& config = opened->config;
  EXPECT_EQ(config.architecture, Architecture::kLlama);
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.hidden, 32);
  EXPECT_EQ(config.intermediate, 48);
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.vocabulary, 10);
  EXPECT_EQ(config.max_positions, 256);
  EXPECT_EQ(config.rms_epsilon, 1e-5F);
  EXPECT_EQ(config.rope_theta, 500000.0);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_FALSE(config.qkv_bias);
  EXPECT_EQ(config.checkpoint_type, ElementType::kF32);
}

TEST_F(GgufConfig, KnowsTheFamilies) {
  const Result<ModelFolder> qwen2 = open(llama("qwen2"));
  ASSERT_TRUE(qwen2.ok()) << qwen2.error().message;
  EXPECT_TRUE(qwen2->config.qkv_bias);
  const Result<ModelFolder> qwen3 = open(llama("qwen3").integer("qwen3.attention.key_length", 16));
  ASSERT_TRUE(qwen3.ok()) << qwen3.error().message;
  EXPECT_TRUE(qwen3->config.qk_norm);
  EXPECT_EQ(qwen3->config.head_dim, 16);
  const Result<ModelFolder> mistral = open(llama().integer("llama.attention.sliding_window", 64));
  ASSERT_TRUE(mistral.ok()) << mistral.error().message;
  EXPECT_EQ(mistral->config.architecture, Architecture::kMistral);
  EXPECT_THAT(mistral->config.windows, ElementsAre(64, 64));
  EXPECT_THAT(error_of(llama("gemma2")),
              AllOf(HasSubstr("m.gguf: key 'general.architecture' is 'gemma2'"),
                    HasSubstr("supported are llama")));
}

TEST_F(GgufConfig, ReadsRopeScaling) {
  const auto scaled = [](const char* type) {
    FileBuilder file = llama();
    file.string("llama.rope.scaling.type", type).number("llama.rope.scaling.factor", 4.0F);
    return file;
  };
  const Result<ModelFolder> linear = open(scaled("linear"));
  ASSERT_TRUE(linear.ok()) << linear.error().message;
  EXPECT_EQ(std::get<LinearRope>(linear->config.rope_scaling).factor, 4.0);
  const Result<ModelFolder> yarn =
      open(scaled("yarn").integer("llama.rope.scaling.original_context_length", 64));
  ASSERT_TRUE(yarn.ok()) << yarn.error().message;
  EXPECT_EQ(std::get<YarnRope>(yarn->config.rope_scaling).factor, 4.0);
  EXPECT_EQ(std::get<YarnRope>(yarn->config.rope_scaling).original_max_positions, 64);
  EXPECT_NEAR(rope_attention_factor(yarn->config), 1.138629, 1e-6);
  EXPECT_THAT(error_of(scaled("longrope")), HasSubstr("'llama.rope.scaling.type' is 'longrope'"));
  EXPECT_THAT(error_of(llama().integer("llama.rope.dimension_count", 4)),
              HasSubstr("rotate a part of each head"));
}

TEST_F(GgufConfig, DividesFrequenciesByTheTensorOfDivisors) {
  FileBuilder file = llama();
  file.floats("rope_freqs.weight", {4}, {1, 1, 2, 8});
  const Result<ModelFolder> divided = open(file);
  ASSERT_TRUE(divided.ok()) << divided.error().message;
  const Result<ModelFolder> plain = open(llama());
  const std::vector<double> frequencies = rope_inverse_frequencies(divided->config, 256);
  const std::vector<double> undivided = rope_inverse_frequencies(plain->config, 256);
  EXPECT_EQ(frequencies[1], undivided[1]);
  EXPECT_EQ(frequencies[3], undivided[3] / 8);
  FileBuilder short_one = llama();
  short_one.floats("rope_freqs.weight", {2}, {1, 2});
  EXPECT_THAT(error_of(short_one), HasSubstr("must be F32 of shape [4]"));
  FileBuilder zero = llama();
  zero.floats("rope_freqs.weight", {4}, {1, 0, 2, 8});
  EXPECT_THAT(error_of(zero), HasSubstr("divisors must be from 1e-6"));
}

TEST_F(GgufConfig, CollectsEndTokens) {
  FileBuilder file = llama();
  file.strings("tokenizer.ggml.tokens",
               std::vector<std::string>{"a", "b", "<|eot_id|>", "<|im_end|>", "e"});
  file.numbers("tokenizer.ggml.token_type", gguf::ValueType::kInt32,
               std::vector<int32_t>{1, 1, 3, 1, 1});
  file.integer("tokenizer.ggml.eos_token_id", 1).integer("tokenizer.ggml.eot_token_id", 99);
  const Result<ModelFolder> opened = open(file);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_THAT(opened->eos_token_ids, ElementsAre(1, 2));
  ASSERT_EQ(opened->warnings.size(), 1U);
  EXPECT_THAT(opened->warnings.front(),
              AllOf(HasSubstr("tokenizer.ggml.eos_token_id"), HasSubstr("99")));
}

TEST_F(GgufConfig, ReadsSamplingDefaults) {
  const Result<ModelFolder> opened =
      open(llama().number("general.sampling.temp", 0.5F).integer("general.sampling.top_k", 40));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(opened->generation.temperature, 0.5F);
  EXPECT_EQ(opened->generation.top_k, 40);
  EXPECT_FALSE(opened->generation.top_p);
}

TEST_F(GgufConfig, NamesKeysThatAreMissingOrWrong) {
  FileBuilder empty;
  empty.integer("a", 1);
  EXPECT_THAT(error_of(empty), HasSubstr("m.gguf: key 'general.architecture' is missing"));
  FileBuilder no_layers;
  no_layers.string("general.architecture", "llama");
  no_layers.number("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  EXPECT_THAT(error_of(no_layers), HasSubstr("m.gguf: llama.block_count: is missing"));
  FileBuilder wrong;
  wrong.string("general.architecture", "llama").string("llama.block_count", "two");
  EXPECT_THAT(error_of(wrong), HasSubstr("key 'llama.block_count' is of type string"));
  EXPECT_THAT(error_of(llama().integer("llama.expert_count", 8)),
              HasSubstr("'llama.expert_count' is 8"));
  FileBuilder layers;
  layers.string("general.architecture", "llama");
  layers.numbers("llama.feed_forward_length", gguf::ValueType::kInt32,
                 std::vector<int32_t>{48, 64});
  EXPECT_THAT(error_of(layers), HasSubstr("differs between layers"));
  FileBuilder other = llama();
  other.floats("blk.0.ffn_gate_inp.weight", {1}, {1});
  EXPECT_THAT(error_of(other), HasSubstr("tensor 'blk.0.ffn_gate_inp.weight' has no place"));
}

TEST_F(GgufConfig, RefusesTensorsThatTheModelDoesNotUse) {
  for (const char* name : {"blk.2.ffn_down.weight", "blk.01.ffn_down.weight",
                           "blk.1.attn_q_norm.weight", "blk.0.attn_k_norm.weight"}) {
    FileBuilder file = llama();
    file.floats(name, {1}, {1});
    EXPECT_THAT(error_of(file), AllOf(HasSubstr(name), HasSubstr("a model of 2 layers")));
  }
  FileBuilder last = llama();
  last.floats("blk.1.ffn_down.weight", {1}, {1});
  EXPECT_EQ(error_of(last), "no error");
  FileBuilder norm = llama("qwen3");
  norm.floats("blk.1.attn_q_norm.weight", {1}, {1});
  EXPECT_EQ(error_of(norm), "no error");
}

TEST(GgufNames, GoBothWays) {
  EXPECT_EQ(plan_name_of_gguf("blk.12.ffn_down.weight"), "model.layers.12.mlp.down_proj.weight");
  EXPECT_EQ(gguf_name_of_plan("model.layers.12.mlp.down_proj.weight"), "blk.12.ffn_down.weight");
  EXPECT_EQ(plan_name_of_gguf("output.weight"), "lm_head.weight");
  EXPECT_EQ(gguf_name_of_plan("lm_head.weight"), "output.weight");
  EXPECT_EQ(plan_name_of_gguf("blk..ffn_down.weight"), std::nullopt);
  EXPECT_EQ(plan_name_of_gguf("blk.x.ffn_down.weight"), std::nullopt);
}

}  // namespace
}  // namespace tandem::model
