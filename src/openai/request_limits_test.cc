// Requests that would cost more than they may: refused early, by name.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "openai/error_body.h"
#include "openai/generation_request.h"
#include "openai/test_support.h"
#include "openai/token_routes.h"

namespace tandem::openai {
namespace {

// Counts the bytes of all texts that it is given.
class CountingTokenizer final : public text::Tokenizer {
 public:
  [[nodiscard]] Result<std::vector<TokenId>> encode(std::string_view text,
                                                    text::EncodeOptions options) const override {
    bytes_ += std::ssize(text);
    return inner_.encode(text, options);
  }
  [[nodiscard]] std::string_view token_bytes(TokenId id) const override {
    return inner_.token_bytes(id);
  }
  [[nodiscard]] bool is_special(TokenId id) const override { return inner_.is_special(id); }
  [[nodiscard]] std::optional<TokenId> id_of(std::string_view token) const override {
    return inner_.id_of(token);
  }
  [[nodiscard]] const text::TokenizerTraits& traits() const override { return inner_.traits(); }
  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  ByteTokenizer inner_;
  mutable int64_t bytes_ = 0;
};

class RequestLimitsTest : public ::testing::Test {
 protected:
  Result<GenerationRequest> complete(std::string_view fields) {
    return parse_generation(Endpoint::kCompletions, "{" + std::string(fields) + "}", context_);
  }
  Result<GenerationRequest> chat(std::string_view message) {
    return parse_generation(Endpoint::kChat, R"({"messages":[)" + std::string(message) + "]}",
                            context_);
  }
  std::string refusal_of(const Result<GenerationRequest>& request) {
    EXPECT_TRUE(request.ok()) << request.error().message;
    const Result<Request> made = make_request(*request, 0, test_.model);
    EXPECT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
    return made.error().message;
  }

  TestModel test_;
  CountingTokenizer tokenizer_;
  ParseContext context_{.model = test_.model,
                        .tokenizer = tokenizer_,
                        .chat_template = test_.chat_template,
                        .defaults = {},
                        .limits = {},
                        .local_time = {}};
};

TEST_F(RequestLimitsTest, TextsFarBeyondTheContextAreNotCounted) {
  const std::string quoted = "\"" + std::string(5000, 'a') + "\"";
  EXPECT_NE(refusal_of(complete("\"prompt\":" + quoted))
                .find("64 tokens, and the prompt has more "
                      "than 4160"),
            std::string::npos);
  EXPECT_NE(refusal_of(chat(R"({"role":"user","content":)" + quoted + "}")).find("more than 4160"),
            std::string::npos);
  // What else is asked for does not matter, nor do empty prompts beside it.
  EXPECT_TRUE(complete("\"echo\":true,\"logprobs\":20,\"prompt\":" + quoted)->too_long);
}

TEST_F(RequestLimitsTest, NoPromptIsTokenizedAfterOneThatDoesNotFit) {
  const std::string fits = "\"" + std::string(50, 'a') + "\"";
  const std::string too_long = "\"" + std::string(70, 'a') + "\"";
  std::string list = fits + "," + too_long;
  for (int i = 0; i < 200; ++i) {
    list += "," + fits;
  }
  EXPECT_NE(refusal_of(complete("\"prompt\":[" + list + "]")).find("has 71"), std::string::npos);
  EXPECT_EQ(tokenizer_.bytes(), 120);
}

TEST_F(RequestLimitsTest, EchoedTextsAreBounded) {
  context_.limits.max_echo_bytes = 30;
  EXPECT_TRUE(complete(R"("prompt":"0123456789","echo":true,"n":3)").ok());
  const auto many = complete(R"("prompt":"0123456789","echo":true,"n":4)");
  ASSERT_FALSE(many.ok());
  EXPECT_EQ(many.error().param, "echo");
  EXPECT_TRUE(complete(R"("prompt":"0123456789","n":4)").ok());
}

TEST_F(RequestLimitsTest, ListedTokensAreBoundedButNotByTheContext) {
  RequestLimits limits;
  limits.max_listed_tokens = 100;
  const ModelDirectory directory({{.frontend = test_.frontend,
                                   .tokenizer = tokenizer_,
                                   .chat_template = test_.chat_template,
                                   .defaults = {}}},
                                 limits, {});
  const auto body = [](int count) {
    return R"({"prompt":")" + std::string(static_cast<size_t>(count), 'a') + R"("})";
  };
  EXPECT_TRUE(tokenize(body(99), directory).ok());  // 100 with BOS
  const auto refused = tokenize(body(100), directory);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().param, "prompt");
  std::string ids = "7";
  for (int i = 1; i < 101; ++i) {
    ids += ",7";
  }
  EXPECT_EQ(detokenize(R"({"tokens":[)" + ids + "]}", directory).error().param, "tokens");
  EXPECT_TRUE(detokenize(R"({"tokens":[)" + ids.substr(2) + "]}", directory).ok());
}

TEST_F(RequestLimitsTest, VariablesOfTemplatesAreFew) {
  const auto with = [&](int count) {
    std::string object;
    for (int i = 0; i < count; ++i) {
      object += (i == 0 ? "\"x" : ",\"x") + std::to_string(i) + "\":0";
    }
    return parse_generation(Endpoint::kChat,
                            R"({"messages":[{"role":"user","content":"a"}],)"
                            R"("chat_template_kwargs":{)" +
                                object + "}}",
                            context_);
  };
  EXPECT_TRUE(with(64).ok());
  EXPECT_EQ(with(65).error().param, "chat_template_kwargs");
}

TEST_F(RequestLimitsTest, WhatIsNotBuiltIsCalledUnsupported) {
  const auto image =
      chat(R"({"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,"}}]})");
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(image.error().message.find("of type \"image_url\" are not"), std::string::npos);
  EXPECT_NE(error_body(image.error(), "").find(R"("code":"unsupported")"), std::string::npos);
  const auto schema = complete(R"("prompt":"a","response_format":{"type":"json_schema"})");
  ASSERT_FALSE(schema.ok());
  EXPECT_EQ(schema.error().message,
            "'response_format' of type \"json_schema\" is not supported, only \"text\" is; leave "
            "the field out");
}

}  // namespace
}  // namespace tandem::openai
