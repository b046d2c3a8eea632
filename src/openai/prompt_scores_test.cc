// echo and prompt_logprobs of /v1/completions: what is asked of the engine, and how it is answered.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_time.h"
#include "openai/generation.h"
#include "openai/test_support.h"

namespace tandem::openai {
namespace {

class PromptScores : public ::testing::Test {
 protected:
  Result<GenerationRequest> parse(std::string_view fields, std::string_view prompt = R"("hé")") {
    return parse_generation(Endpoint::kCompletions,
                            "{\"prompt\":" + std::string(prompt) + std::string(fields) + "}",
                            test_.context);
  }
  Generation make(std::string_view fields, std::string_view prompt = R"("hé")") {
    auto request = parse(fields, prompt);
    EXPECT_TRUE(request.ok()) << request.error().message;
    return {*request, {.id = "id-1", .created_unix_seconds = 1234}, test_.tokenizer};
  }
  static std::string take(Generation& generation, std::vector<TokenEvent> events) {
    std::string out;
    std::ignore = generation.take(0, events, out);
    return out;
  }
  // Scores -1, -2, .. with ranks 1, 2, ..; the most likely token is always 'x'.
  static TokenEvent prompt_event(int count) {
    TokenEvent event;
    event.kind = TokenEvent::Kind::kPrompt;
    event.prompt_logprobs = std::make_unique<std::vector<LogprobInfo>>();
    for (int i = 1; i <= count; ++i) {
      event.prompt_logprobs->push_back(
          {.logprob = -static_cast<float>(i), .rank = i, .top = {{'x', -0.5F}}});
    }
    return event;
  }
  static TokenEvent scored_token(TokenId token) {
    TokenEvent event = token_event(token);
    event.logprobs = std::make_unique<LogprobInfo>();
    event.logprobs->logprob = -0.25F;
    return event;
  }
  static std::vector<TokenEvent> list(TokenEvent first, TokenEvent second, TokenEvent third) {
    std::vector<TokenEvent> events;
    events.push_back(std::move(first));
    events.push_back(std::move(second));
    events.push_back(std::move(third));
    return events;
  }
  static std::vector<Json> choices_of(const std::string& stream) {
    std::vector<Json> out;
    for (size_t begin = 0; begin < stream.size();) {
      const size_t end = stream.find("\n\n", begin);
      const std::string data = stream.substr(begin + 6, end - begin - 6);
      if (data != "[DONE]") {
        out.push_back(Json::parse(data)["choices"][0]);
      }
      begin = end + 2;
    }
    return out;
  }

  TestModel test_;
};

TEST_F(PromptScores, TheEngineIsAskedForWhatTheAnswerShows) {
  EXPECT_EQ(parse("")->sampling.prompt_logprobs, -1);
  EXPECT_EQ(parse(R"(,"logprobs":3)")->sampling.prompt_logprobs, -1);
  EXPECT_EQ(parse(R"(,"echo":true)")->sampling.prompt_logprobs, -1);
  EXPECT_EQ(parse(R"(,"echo":true,"logprobs":3)")->sampling.prompt_logprobs, 3);
  EXPECT_EQ(parse(R"(,"prompt_logprobs":0)")->sampling.prompt_logprobs, 0);
  EXPECT_EQ(parse(R"(,"prompt_logprobs":2,"echo":true,"logprobs":20)")->sampling.prompt_logprobs,
            20);
  EXPECT_TRUE(parse(R"(,"echo":true,"logprobs":3,"stream":true)").ok());
}

TEST_F(PromptScores, ChatHasNeither) {
  for (const std::string_view field : {R"("echo":true)", R"("prompt_logprobs":1)"}) {
    const auto request = parse_generation(
        Endpoint::kChat,
        R"({"messages":[{"role":"user","content":"a"}],)" + std::string(field) + "}",
        test_.context);
    ASSERT_FALSE(request.ok());
    EXPECT_EQ(request.error().code, ErrorCode::kUnsupported);
  }
}

TEST_F(PromptScores, MoreScoresThanAnAnswerMayHoldAreRefused) {
  test_.context.limits.max_scores = 24;
  EXPECT_TRUE(parse(R"(,"prompt_logprobs":5)").ok());  // 4 tokens of 6
  EXPECT_EQ(parse(R"(,"prompt_logprobs":6)").error().param, "prompt_logprobs");
  EXPECT_EQ(parse(R"(,"echo":true,"logprobs":5,"n":2)").error().param, "logprobs");
}

TEST_F(PromptScores, ValuesThatMakeNoSenseAreRefusedByName) {
  const std::vector<std::pair<std::string_view, std::string_view>> table = {
      {R"(,"echo":1)", "echo"},
      {R"(,"echo":"yes")", "echo"},
      {R"(,"echo":true,"max_tokens":-1)", "max_tokens"},
      {R"(,"echo":true,"max_tokens":0,"min_tokens":1)", "min_tokens"},
      {R"(,"echo":true,"logprobs":21)", "logprobs"},
      {R"(,"prompt_logprobs":true)", "prompt_logprobs"},
      {R"(,"prompt_logprobs":1.5)", "prompt_logprobs"},
      {R"(,"prompt_logprobs":99999999999999999999)", "prompt_logprobs"},
      {R"(,"prompt_logprobs":0,"stream":true)", "prompt_logprobs"}};
  for (const auto& [fields, param] : table) {
    const auto request = parse(fields);
    ASSERT_FALSE(request.ok()) << fields;
    EXPECT_EQ(request.error().param, param) << request.error().message;
    EXPECT_EQ(request.error().code, ErrorCode::kInvalidArgument);
  }
}

// Eight times the tokens take 8 times the work, not 64 times; in time of this thread alone, so that
// a busy machine does not matter.
TEST_F(PromptScores, WorkGrowsWithTheTokensNotWithTheirSquare) {
  const auto work_of = [&](size_t count) {
    const std::vector<TokenId> tokens(count, ByteTokenizer::kHello);
    const std::vector<LogprobInfo> infos(count - 1);
    std::string text;
    for (size_t i = 0; i < count; ++i) {
      text += "hello";
    }
    Nanos best = Nanos::max();
    for (int i = 0; i < 5; ++i) {
      LogprobsJson json(test_.tokenizer, {.top = 0});
      const Nanos begin = thread_time();
      EXPECT_EQ(json.add_prompt(tokens, infos, text), std::ssize(text));
      best = std::min(best, thread_time() - begin);
    }
    return best;
  };
  EXPECT_LT(work_of(160'000), 32 * work_of(20'000));
}

TEST_F(PromptScores, TheChoicesOfAPromptShareItsPart) {
  Generation generation = make(R"(,"echo":true,"logprobs":1,"n":3)");
  std::vector<TokenEvent> events;
  events.push_back(prompt_event(3));
  for (int32_t choice = 0; choice < 3; ++choice) {
    TokenEvent token = scored_token('a' + choice);
    token.choice = choice;
    events.push_back(std::move(token));
    events.push_back(finish_event(FinishReason::kLength, choice));
  }
  take(generation, std::move(events));
  const Json body = Json::parse(generation.body());
  for (size_t choice = 0; choice < 3; ++choice) {
    const Json& logprobs = body["choices"][choice]["logprobs"];
    EXPECT_EQ(logprobs["tokens"].size(), 5U);
    EXPECT_EQ(logprobs["tokens"][1], "h");
    EXPECT_EQ(logprobs["tokens"][4], std::string(1, static_cast<char>('a' + choice)));
    EXPECT_EQ(logprobs["text_offset"], Json({0, 0, 1, 1, 2}));
  }
}

TEST_F(PromptScores, EchoPutsThePromptBeforeEveryAnswer) {
  Generation generation = make(R"(,"echo":true,"n":2)");
  take(generation, list(token_event('!'), finish_event(FinishReason::kLength),
                        finish_event(FinishReason::kLength, 1)));
  const Json body = Json::parse(generation.body());
  EXPECT_EQ(body["choices"][0]["text"], "hé!");
  EXPECT_EQ(body["choices"][1]["text"], "hé");
  EXPECT_TRUE(body["choices"][0]["logprobs"].is_null());
  EXPECT_FALSE(body["choices"][0].contains("prompt_logprobs"));
  EXPECT_EQ(body["usage"]["completion_tokens"], 1);
}

TEST_F(PromptScores, EchoOfTokenIdsIsTheirText) {
  EXPECT_EQ(parse(R"(,"echo":true)", "[104,258]")->prompt_texts.at(0), "hhello");
  EXPECT_EQ(parse(R"(,"echo":true)", "[[104],[258]]")->prompt_texts.at(1), "hello");
  EXPECT_EQ(parse(R"(,"echo":true)", R"(["a","b"])")->prompt_texts.at(1), "b");
  EXPECT_EQ(parse(R"(,"echo":true)", "[195]")->prompt_texts.at(0), "\uFFFD");
}

// <s>, "h" and the two bytes of "é".
constexpr std::string_view kOffsets = "[0,0,1,1,2]";

TEST_F(PromptScores, LogprobsOfAnEchoBeginWithThePrompt) {
  Generation generation = make(R"(,"echo":true,"logprobs":1)");
  take(generation, list(prompt_event(3), scored_token('!'), finish_event(FinishReason::kLength)));
  const Json logprobs = Json::parse(generation.body())["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["text_offset"].dump(), kOffsets);
  EXPECT_EQ(logprobs["token_logprobs"].dump(), "[null,-1,-2,-3,-0.25]");
  EXPECT_EQ(logprobs["tokens"].dump(), R"(["<s>","h","bytes:\\xc3","bytes:\\xa9","!"])");
  EXPECT_EQ(logprobs["top_logprobs"].dump(),
            R"([null,{"x":-0.5,"h":-1},{"x":-0.5,"bytes:\\xc3":-2},)"
            R"({"x":-0.5,"bytes:\\xa9":-3},{"!":-0.25}])");
}

TEST_F(PromptScores, AStreamHasThePromptInAChunkOfItsOwn) {
  for (const std::string_view scores : {"", R"(,"logprobs":0)"}) {
    Generation generation = make(R"(,"echo":true,"stream":true)" + std::string(scores));
    std::string out = scores.empty() ? "" : [&] {
      std::vector<TokenEvent> events;
      events.push_back(prompt_event(3));
      return take(generation, std::move(events));
    }();
    out += take(generation,
                list(scored_token('!'), scored_token('?'), finish_event(FinishReason::kLength)));
    const std::vector<Json> choices = choices_of(out);
    ASSERT_EQ(choices.size(), 3U) << out;
    EXPECT_EQ(choices[0]["text"], "hé");
    EXPECT_TRUE(choices[0]["finish_reason"].is_null());
    EXPECT_EQ(choices[1]["text"], "!");
    EXPECT_EQ(choices[2]["finish_reason"], "length");
    if (!scores.empty()) {
      EXPECT_EQ(choices[0]["logprobs"]["token_logprobs"].dump(), "[null,-1,-2,-3]");
      EXPECT_EQ(choices[1]["logprobs"]["token_logprobs"].dump(), "[-0.25]");
      EXPECT_EQ(choices[1]["logprobs"]["text_offset"].dump(), "[2]");
    }
  }
}

TEST_F(PromptScores, WithoutTokensToMakeOnlyThePromptIsAnswered) {
  for (const FinishReason reason : {FinishReason::kLength, FinishReason::kStop}) {
    auto request = parse(R"(,"echo":true,"logprobs":0,"max_tokens":0)");
    ASSERT_TRUE(request.ok());
    EXPECT_EQ(make_request(*request, 0, test_.model)->sampling.max_tokens, 1);
    Generation generation(*request, {.id = "id-1", .created_unix_seconds = 1}, test_.tokenizer);
    take(generation, list(prompt_event(3), scored_token('!'), finish_event(reason)));
    const Json body = Json::parse(generation.body());
    EXPECT_EQ(body["choices"][0]["text"], "hé");
    EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
    EXPECT_EQ(body["choices"][0]["logprobs"]["tokens"].size(), 4U);
    EXPECT_EQ(body["usage"]["completion_tokens"], 0);
  }
}

TEST_F(PromptScores, PromptLogprobsAreKeyedByTokenIds) {
  Generation generation = make(R"(,"prompt_logprobs":1)", "[104,195,120]");
  take(generation, list(prompt_event(2), token_event('!'), finish_event(FinishReason::kLength)));
  const Json choice = Json::parse(generation.body())["choices"][0];
  EXPECT_EQ(choice["text"], "!");
  EXPECT_EQ(choice["prompt_logprobs"].dump(),
            "[null,{\"195\":{\"logprob\":-1,\"rank\":1,\"decoded_token\":\"\uFFFD\"},"
            "\"120\":{\"logprob\":-0.5,\"rank\":1,\"decoded_token\":\"x\"}},"
            "{\"120\":{\"logprob\":-2,\"rank\":2,\"decoded_token\":\"x\"}}]");
}

}  // namespace
}  // namespace tandem::openai
