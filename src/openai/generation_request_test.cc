#include "openai/generation_request.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "openai/test_support.h"

namespace tandem::openai {
namespace {

class GenerationRequestTest : public ::testing::Test {
 protected:
  Result<GenerationRequest> complete(std::string_view body) {
    return parse_generation(Endpoint::kCompletions, body, test_.context);
  }
  Result<GenerationRequest> chat(std::string_view body) {
    return parse_generation(Endpoint::kChat, body, test_.context);
  }
  // The fields beside a valid prompt.
  Result<GenerationRequest> with(std::string_view fields) {
    return complete(R"({"prompt":"ab",)" + std::string(fields) + "}");
  }
  Result<GenerationRequest> chat_with(std::string_view fields) {
    return chat(R"({"messages":[{"role":"user","content":"hi"}],)" + std::string(fields) + "}");
  }
  std::string shown(const std::vector<TokenId>& tokens) {
    return test_.tokenizer.decode(tokens, {.skip_special_tokens = false});
  }

  TestModel test_;
};

TEST_F(GenerationRequestTest, PromptsComeInFourShapes) {
  using Prompts = std::vector<std::vector<TokenId>>;
  constexpr TokenId kBos = ByteTokenizer::kBos;
  EXPECT_EQ(complete(R"({"prompt":"ab"})")->prompts, (Prompts{{kBos, 'a', 'b'}}));
  EXPECT_EQ(complete(R"({"prompt":["a","b"]})")->prompts, (Prompts{{kBos, 'a'}, {kBos, 'b'}}));
  EXPECT_EQ(complete(R"({"prompt":[1,2,3]})")->prompts, (Prompts{{1, 2, 3}}));
  EXPECT_EQ(complete(R"({"prompt":[[1],[2,3]]})")->prompts, (Prompts{{1}, {2, 3}}));
  EXPECT_EQ(complete(R"({"prompt":"a</s>"})")->prompts,
            (Prompts{{kBos, 'a', ByteTokenizer::kEos}}));
  EXPECT_EQ(complete(R"({"prompt":["a","b"],"add_special_tokens":false})")->prompts,
            (Prompts{{'a'}, {'b'}}));
}

TEST_F(GenerationRequestTest, DefaultsAreTheModels) {
  test_.context.defaults.temperature = 0.5F;
  test_.context.defaults.top_k = 40;
  test_.context.defaults.repetition_penalty = 1.25F;
  const auto request = complete(R"({"prompt":"a","model":null,"temperature":null,"stop":null})");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->sampling.temperature, 0.5F);
  EXPECT_EQ(request->sampling.top_k, 40);
  EXPECT_EQ(request->sampling.repetition_penalty, 1.25F);
  EXPECT_EQ(request->sampling.logprobs, -1);
  EXPECT_FALSE(request->sampling.seed.has_value());
  EXPECT_EQ(request->n, 1);
  EXPECT_FALSE(request->stream);
  EXPECT_EQ(request->model, "tiny");
  EXPECT_EQ(request->max_tokens, 16);
  EXPECT_EQ(with(R"("top_k":-1)")->sampling.top_k, 0);
}

TEST_F(GenerationRequestTest, AllSamplingOptionsAreRead) {
  const auto request = with(
      R"("model":"small","temperature":0,"top_p":0.5,"top_k":7,"min_p":0.25,"seed":-1,
         "repetition_penalty":1.5,"presence_penalty":-2,"frequency_penalty":2,
         "logit_bias":{"7":-100,"259":1.5},"stop":["x","yz"],"stop_token_ids":[3,4],
         "min_tokens":2,"max_tokens":5,"ignore_eos":true,"n":3,"logprobs":2,"stream":true,
         "stream_options":{"include_usage":true,"continuous_usage_stats":true},
         "include_stop_str_in_output":true,"skip_special_tokens":false,"user":"u",
         "something_unknown":{"a":[1]},"cache_salt":"s","best_of":3,"echo":false,"suffix":"")");
  ASSERT_TRUE(request.ok()) << request.error().message;
  const SamplingParams& params = request->sampling;
  EXPECT_EQ(request->model, "small");
  EXPECT_EQ(params.temperature, 0.0F);
  EXPECT_EQ(params.top_p, 0.5F);
  EXPECT_EQ(params.top_k, 7);
  EXPECT_EQ(params.min_p, 0.25F);
  EXPECT_EQ(params.seed, ~uint64_t{0});
  EXPECT_EQ(params.repetition_penalty, 1.5F);
  EXPECT_EQ(params.presence_penalty, -2.0F);
  EXPECT_EQ(params.frequency_penalty, 2.0F);
  ASSERT_EQ(params.logit_bias.size(), 2U);
  EXPECT_EQ(params.logit_bias[1].token, 259);
  EXPECT_EQ(params.logit_bias[1].bias, 1.5F);
  EXPECT_EQ(params.stop_strings, (std::vector<std::string>{"x", "yz"}));
  EXPECT_EQ(params.stop_token_ids, (std::vector<TokenId>{3, 4}));
  EXPECT_EQ(params.min_tokens, 2);
  EXPECT_TRUE(params.ignore_eos);
  EXPECT_TRUE(params.include_stop_string);
  EXPECT_EQ(params.logprobs, 2);
  EXPECT_EQ(request->max_tokens, 5);
  EXPECT_EQ(request->n, 3);
  EXPECT_TRUE(request->stream);
  EXPECT_EQ(request->stream_usage, StreamUsage::kContinuous);
  EXPECT_FALSE(request->skip_special_tokens);
  EXPECT_EQ(request->cache_salt, "s");
}

struct Bad {
  std::string_view fields;
  std::string_view param;
};

TEST_F(GenerationRequestTest, WrongOptionsAreRefusedByName) {
  const std::vector<Bad> table = {
      {R"("temperature":-0.1)", "temperature"},
      {R"("temperature":"hot")", "temperature"},
      {R"("temperature":true)", "temperature"},
      {R"("temperature":1e300)", "temperature"},
      {R"("top_p":-0.01)", "top_p"},
      {R"("top_p":1.01)", "top_p"},
      {R"("top_k":-2)", "top_k"},
      {R"("top_k":1.5)", "top_k"},
      {R"("top_k":99999999999)", "top_k"},
      {R"("min_p":-0.1)", "min_p"},
      {R"("min_p":1.1)", "min_p"},
      {R"("repetition_penalty":0)", "repetition_penalty"},
      {R"("repetition_penalty":1e-40)", "repetition_penalty"},
      {R"("repetition_penalty":1001)", "repetition_penalty"},
      {R"("presence_penalty":2.5)", "presence_penalty"},
      {R"("frequency_penalty":-2.5)", "frequency_penalty"},
      {R"("seed":1.5)", "seed"},
      {R"("seed":18446744073709551616)", "seed"},
      {R"("logit_bias":[])", "logit_bias"},
      {R"("logit_bias":{"x":1})", "logit_bias"},
      {R"("logit_bias":{"260":1})", "logit_bias"},
      {R"("logit_bias":{"-1":1})", "logit_bias"},
      {R"("logit_bias":{" 1":1})", "logit_bias"},
      {R"("logit_bias":{"1":101})", "logit_bias"},
      {R"("logit_bias":{"1":"a"})", "logit_bias"},
      {R"("stop":5)", "stop"},
      {R"("stop":"")", "stop"},
      {R"("stop":["a",""])", "stop"},
      {R"("stop":["a",1])", "stop"},
      {R"("stop":["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])", "stop"},
      {R"("stop_token_ids":7)", "stop_token_ids"},
      {R"("stop_token_ids":[260])", "stop_token_ids"},
      {R"("stop_token_ids":["1"])", "stop_token_ids"},
      {R"("min_tokens":-1)", "min_tokens"},
      {R"("min_tokens":17)", "min_tokens"},
      {R"("max_tokens":0)", "max_tokens"},
      {R"("max_tokens":-5)", "max_tokens"},
      {R"("max_tokens":"16")", "max_tokens"},
      {R"("max_completion_tokens":0)", "max_completion_tokens"},
      {R"("ignore_eos":1)", "ignore_eos"},
      {R"("n":0)", "n"},
      {R"("n":5)", "n"},
      {R"("n":"2")", "n"},
      {R"("best_of":2)", "best_of"},
      {R"("logprobs":21)", "logprobs"},
      {R"("logprobs":true)", "logprobs"},
      {R"("logprobs":-1)", "logprobs"},
      {R"("stream":"yes")", "stream"},
      {R"("stream_options":{"include_usage":true})", "stream_options"},
      {R"("stream":true,"stream_options":[])", "stream_options"},
      {R"("stream":true,"stream_options":{"include_usage":3})", "stream_options.include_usage"},
      {R"("model":7)", "model"},
      {R"("suffix":"x")", "suffix"},
      {R"("echo":1)", "echo"},
      {R"("echo":"yes")", "echo"},
      {R"("use_beam_search":true)", "use_beam_search"},
      {R"("prompt_logprobs":-1)", "prompt_logprobs"},
      {R"("prompt_logprobs":21)", "prompt_logprobs"},
      {R"("guided_json":{"type":"object"})", "guided_json"},
      {R"("response_format":{"type":"json_object"})", "response_format"},
      {R"("response_format":"text")", "response_format"},
      {R"("skip_special_tokens":"no")", "skip_special_tokens"},
      {R"("cache_salt":5)", "cache_salt"},
      {R"("service_tier":"gold")", "service_tier"},
      {R"("priority":"high")", "priority"},
      {R"("priority":1.5)", "priority"},
      {R"("priority":3000000000)", "priority"},
  };
  for (const Bad& bad : table) {
    const auto request = with(bad.fields);
    ASSERT_FALSE(request.ok()) << bad.fields;
    EXPECT_EQ(request.error().param, bad.param) << request.error().message;
    EXPECT_TRUE(request.error().code == ErrorCode::kInvalidArgument ||
                request.error().code == ErrorCode::kUnsupported)
        << bad.fields;
  }
}

TEST_F(GenerationRequestTest, ATopPOfZeroKeepsTheMostLikelyToken) {
  for (const std::string_view value : {"0", "0.0", "1e-300"}) {
    const auto request = with(R"("top_k":40,"top_p":)" + std::string(value));
    ASSERT_TRUE(request.ok()) << request.error().message;
    EXPECT_EQ(request->sampling.top_k, 1);
    EXPECT_EQ(request->sampling.top_p, 1.0F);
  }
}

TEST_F(GenerationRequestTest, MoreChoicesThanRunAtATimeNameTheFlag) {
  test_.model.max_choices = 1;
  const auto request = with(R"("n":2)");
  ASSERT_FALSE(request.ok());
  EXPECT_EQ(request.error().param, "n");
  EXPECT_NE(request.error().message.find("'n' is 2"), std::string::npos);
  EXPECT_NE(request.error().message.find("--max-num-seqs"), std::string::npos);
}

TEST_F(GenerationRequestTest, OnlyTextAndCallsThatAreLeftToTheModelAreSupported) {
  for (const std::string_view fields : {R"("modalities":["text"])", R"("modalities":[])",
                                        R"("function_call":"auto")", R"("function_call":"none")"}) {
    EXPECT_TRUE(with(fields).ok()) << fields;
  }
  for (const Bad& bad :
       {Bad{R"("modalities":["text","audio"])", "modalities"},
        Bad{R"("modalities":["audio"])", "modalities"}, Bad{R"("modalities":"text")", "modalities"},
        Bad{R"("function_call":{"name":"look"})", "function_call"},
        Bad{R"("function_call":"look")", "function_call"}}) {
    const auto request = with(bad.fields);
    ASSERT_FALSE(request.ok()) << bad.fields;
    EXPECT_EQ(request.error().param, bad.param);
    EXPECT_EQ(request.error().code, ErrorCode::kUnsupported);
  }
}

TEST_F(GenerationRequestTest, WrongPromptsAreRefused) {
  for (const std::string_view body :
       {R"({})", R"({"prompt":null})", R"({"prompt":5})", R"({"prompt":[]})", R"({"prompt":{}})",
        R"({"prompt":[1,"a"]})", R"({"prompt":["a",1]})", R"({"prompt":["a",[1]]})",
        R"({"prompt":[[1],"a"]})", R"({"prompt":[[]]})", R"({"prompt":[[[1]]]})",
        R"({"prompt":[-1]})", R"({"prompt":[260]})", R"({"prompt":[1.5]})",
        R"({"prompt":[4294967297]})", R"({"prompt":[true]})"}) {
    const auto request = complete(body);
    ASSERT_FALSE(request.ok()) << body;
    EXPECT_EQ(request.error().param, "prompt") << body;
  }
}

TEST_F(GenerationRequestTest, TooManyPromptsOrChoicesAreRefused) {
  test_.context.limits.max_prompts = 2;
  EXPECT_TRUE(complete(R"({"prompt":["a","b"]})").ok());
  EXPECT_EQ(complete(R"({"prompt":["a","b","c"]})").error().param, "prompt");
  test_.context.limits.max_choices = 3;
  EXPECT_EQ(complete(R"({"prompt":["a","b"],"n":2})").error().param, "n");
}

TEST_F(GenerationRequestTest, UnknownModelsAreNotFound) {
  const auto request = with(R"("model":"huge")");
  ASSERT_FALSE(request.ok());
  EXPECT_EQ(request.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(request.error().param, "model");
}

TEST_F(GenerationRequestTest, ChatGoesThroughTheTemplate) {
  const auto request = chat(R"({"messages":[{"role":"system","content":"s"},
      {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]})");
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(shown(request->prompts[0]), "[system]s[user]a\nb[assistant]");
  const auto quiet = chat_with(R"("add_generation_prompt":false)");
  EXPECT_EQ(shown(quiet->prompts[0]), "[user]hi");
}

TEST_F(GenerationRequestTest, AMessageThatCallsNeedsNoContent) {
  for (const std::string call :
       {R"("tool_calls":[{"type":"function","function":{"name":"look","arguments":"{}"}}])",
        R"("function_call":{"name":"look","arguments":"{}"})"}) {
    const auto request = chat(R"({"messages":[{"role":"assistant","content":null,)" + call +
                              R"(},{"role":"function","name":"look","content":"seen"}]})");
    ASSERT_TRUE(request.ok()) << request.error().message;
    EXPECT_EQ(shown(request->prompts[0]), "[assistant][function]seen[assistant]");
  }
}

TEST_F(GenerationRequestTest, ToolsReachTheTemplateUnlessForbidden) {
  const std::string tools =
      R"("tools":[{"type":"function","function":{"name":"look","parameters":{}}}])";
  EXPECT_EQ(shown(chat_with(tools)->prompts[0]), "{look}[user]hi[assistant]");
  EXPECT_EQ(shown(chat_with(tools + R"(,"tool_choice":"auto")")->prompts[0]),
            "{look}[user]hi[assistant]");
  EXPECT_EQ(shown(chat_with(tools + R"(,"tool_choice":"none")")->prompts[0]),
            "[user]hi[assistant]");
  for (const std::string choice :
       {R"("required")", R"({"type":"function","function":{"name":"look"}})", "7", R"("x")"}) {
    const auto request = chat_with(tools + R"(,"tool_choice":)" + choice);
    ASSERT_FALSE(request.ok()) << choice;
    EXPECT_EQ(request.error().param, "tool_choice");
  }
}

TEST_F(GenerationRequestTest, WrongMessagesAreRefusedByName) {
  const std::vector<Bad> table = {
      {R"({})", "messages"},
      {R"({"messages":"hi"})", "messages"},
      {R"({"messages":[]})", "messages"},
      {R"({"messages":["hi"]})", "messages[0]"},
      {R"({"messages":[{"content":"a"}]})", "messages[0]"},
      {R"({"messages":[{"role":7,"content":"a"}]})", "messages[0]"},
      {R"({"messages":[{"role":"user"}]})", "messages[0]"},
      {R"({"messages":[{"role":"user","content":5}]})", "messages[0]"},
      {R"({"messages":[{"role":"assistant","content":null,"tool_calls":null}]})", "messages[0]"},
      {R"({"messages":[{"role":"assistant","content":null,"tool_calls":[]}]})", "messages[0]"},
      {R"({"messages":[{"role":"assistant","content":null,"function_call":null}]})", "messages[0]"},
      {R"({"messages":[{"role":"user","content":"a"},{"role":"user","content":[5]}]})",
       "messages[1]"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]})",
       "messages[0]"},
      {R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})", "messages[0]"},
      {R"({"messages":[{"role":"user","content":"a"}],"tools":[{}]})", "tools[0]"},
      {R"({"messages":[{"role":"user","content":"a"}],"tools":{}})", "tools"},
      {R"({"messages":[{"role":"user","content":"a"}],"chat_template":"x"})", "chat_template"},
      {R"({"messages":[{"role":"user","content":"a"}],"top_logprobs":2})", "top_logprobs"},
      {R"({"messages":[{"role":"user","content":"a"}],"logprobs":2})", "logprobs"},
      {R"({"messages":[{"role":"user","content":"a"}],"continue_final_message":true})",
       "continue_final_message"},
  };
  for (const Bad& bad : table) {
    const auto request = chat(bad.fields);
    ASSERT_FALSE(request.ok()) << bad.fields;
    EXPECT_EQ(request.error().param, bad.param) << request.error().message;
    EXPECT_NE(request.error().message.find(bad.param), std::string::npos);
  }
}

TEST_F(GenerationRequestTest, ChatLogprobsAreASwitchAndACount) {
  EXPECT_EQ(chat_with(R"("logprobs":true)")->sampling.logprobs, 0);
  EXPECT_EQ(chat_with(R"("logprobs":true,"top_logprobs":5)")->sampling.logprobs, 5);
  EXPECT_EQ(chat_with(R"("logprobs":false,"top_logprobs":0)")->sampling.logprobs, -1);
}

TEST_F(GenerationRequestTest, MaxTokensIsCutToTheContext) {
  const auto of = [&](const Result<GenerationRequest>& request) {
    return make_request(*request, 0, test_.model)->sampling.max_tokens;
  };
  EXPECT_EQ(of(complete(R"({"prompt":[1,2,3,4]})")), 16);
  EXPECT_EQ(of(complete(R"({"prompt":[1,2,3,4],"max_tokens":1000})")), 60);
  EXPECT_EQ(of(complete(R"({"prompt":[1,2,3,4],"max_tokens":7,"max_completion_tokens":9})")), 9);
  // "[user]hi[assistant]" has 19 bytes.
  EXPECT_EQ(of(chat_with(R"("n":1)")), 64 - 19);
  test_.context.defaults.max_tokens = 10;
  EXPECT_EQ(of(chat_with(R"("n":1)")), 10);
  EXPECT_EQ(of(chat_with(R"("max_tokens":20)")), 20);
}

TEST_F(GenerationRequestTest, PromptsBeyondTheContextNameTheNumbers) {
  const std::string long_prompt(100, 'a');
  const auto request = complete(R"({"prompt":")" + long_prompt + R"("})");
  ASSERT_TRUE(request.ok());
  const auto made = make_request(*request, 0, test_.model);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(made.error().param, "prompt");
  EXPECT_NE(made.error().message.find("64 tokens"), std::string::npos);
  EXPECT_NE(made.error().message.find("has 101"), std::string::npos);
  const auto exact = complete(R"({"prompt":")" + std::string(63, 'a') + R"("})");  // 64 with BOS
  EXPECT_FALSE(make_request(*exact, 0, test_.model).ok());
  const auto fits = complete(R"({"prompt":")" + std::string(62, 'a') + R"("})");
  EXPECT_EQ(make_request(*fits, 0, test_.model)->sampling.max_tokens, 1);
}

}  // namespace
}  // namespace tandem::openai
