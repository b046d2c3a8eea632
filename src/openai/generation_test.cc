#include "openai/generation.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "openai/test_support.h"

namespace tandem::openai {
namespace {

class GenerationTest : public ::testing::Test {
 protected:
  GenerationRequest parse(Endpoint endpoint, std::string_view fields) {
    const std::string_view prompt = endpoint == Endpoint::kChat
                                        ? R"("messages":[{"role":"user","content":"hi"}])"
                                        : R"("prompt":[1,2,3])";
    auto request = parse_generation(endpoint, "{" + std::string(prompt) + std::string(fields) + "}",
                                    test_.context);
    EXPECT_TRUE(request.ok()) << request.error().message;
    return std::move(request).value();
  }
  Generation make(Endpoint endpoint, std::string_view fields) {
    return {parse(endpoint, fields), {.id = "id-1", .created_unix_seconds = 1234}, test_.tokenizer};
  }
  Generation complete(std::string_view fields) { return make(Endpoint::kCompletions, fields); }
  Generation chat(std::string_view fields) { return make(Endpoint::kChat, fields); }

  static std::string take(Generation& generation, std::vector<TokenEvent> events) {
    std::string out;
    std::ignore = generation.take(0, events, out);
    return out;
  }
  static std::string take_one(Generation& generation, TokenEvent event) {
    std::vector<TokenEvent> events;
    events.push_back(std::move(event));
    return take(generation, std::move(events));
  }
  static TokenEvent finish(FinishReason reason, int32_t cached_tokens = 0) {
    TokenEvent event = finish_event(reason);
    event.finish->cached_tokens = cached_tokens;
    return event;
  }
  static TokenEvent with_logprobs(TokenId token, std::vector<TokenLogprob> top) {
    TokenEvent event = token_event(token);
    event.logprobs = std::make_unique<LogprobInfo>();
    event.logprobs->logprob = -0.5F;
    event.logprobs->rank = 1;
    event.logprobs->top = std::move(top);
    return event;
  }
  // The documents of a stream's data lines; "[DONE]" becomes a string.
  static std::vector<Json> documents(const std::string& stream) {
    std::vector<Json> out;
    size_t begin = 0;
    while (begin < stream.size()) {
      const size_t end = stream.find("\n\n", begin);
      EXPECT_NE(end, std::string::npos);
      const std::string line = stream.substr(begin, end - begin);
      EXPECT_TRUE(line.starts_with("data: ")) << line;
      const std::string data = line.substr(6);
      out.push_back(data == "[DONE]" ? Json(data) : Json::parse(data));
      begin = end + 2;
    }
    return out;
  }

  TestModel test_;
};

TEST_F(GenerationTest, ACompletionHasOpenAisShape) {
  Generation generation = complete(R"(,"model":"small")");
  EXPECT_EQ(take(generation, text_events("hé")), "");
  EXPECT_FALSE(generation.ended());
  take_one(generation, finish(FinishReason::kLength, 2));
  ASSERT_TRUE(generation.ended());
  EXPECT_EQ(
      generation.body(),
      R"({"id":"id-1","object":"text_completion","created":1234,"model":"small","service_tier":"default","choices":[)"
      R"({"index":0,"text":"hé","logprobs":null,"finish_reason":"length","stop_reason":null}],)"
      R"("usage":{"prompt_tokens":3,"total_tokens":6,"completion_tokens":3,)"
      R"("prompt_tokens_details":{"cached_tokens":2}}})");
}

TEST_F(GenerationTest, AChatCompletionHasOpenAisShape) {
  Generation generation = chat("");
  take(generation, text_events("a\"b"));
  take_one(generation, finish(FinishReason::kStop));
  EXPECT_EQ(
      generation.body(),
      R"({"id":"id-1","object":"chat.completion","created":1234,"model":"tiny","service_tier":"default","choices":[)"
      R"({"index":0,"message":{"role":"assistant","content":"a\"b"},"logprobs":null,)"
      R"("finish_reason":"stop","stop_reason":null}],)"
      R"("usage":{"prompt_tokens":19,"total_tokens":22,"completion_tokens":3,)"
      R"("prompt_tokens_details":{"cached_tokens":0}}})");
}

TEST_F(GenerationTest, AnAnswerThatTheServerBreaksOffIsAnError) {
  for (const bool streams : {false, true}) {
    Generation generation = complete(streams ? R"(,"stream":true)" : "");
    take(generation, text_events("ab"));
    std::vector<TokenEvent> events = text_events("c");
    events.push_back(finish(FinishReason::kCancelled));
    std::string out;
    EXPECT_TRUE(generation.take(0, events, out).empty());
    ASSERT_TRUE(generation.error());
    EXPECT_EQ(generation.error()->code, ErrorCode::kUnavailable);
    EXPECT_TRUE(generation.ended());
    if (streams) {
      const std::vector<Json> chunks = documents(out);
      EXPECT_EQ(chunks.at(0)["choices"][0]["text"], "c");
      EXPECT_EQ(chunks.at(1)["error"]["code"], "service_unavailable");
      EXPECT_EQ(chunks.back(), "[DONE]");
    }
  }
}

TEST_F(GenerationTest, AChoiceThatAStopStringEndedMayBeCancelled) {
  Generation generation = complete(R"(,"stop":["b"])");
  take(generation, text_events("ab"));
  take_one(generation, finish(FinishReason::kCancelled));
  EXPECT_FALSE(generation.error());
  EXPECT_EQ(Json::parse(generation.body())["choices"][0]["finish_reason"], "stop");
}

TEST_F(GenerationTest, TheFirstMinTokensAreNotLookedAtForStopStrings) {
  Generation generation = complete(R"(,"stop":["ab"],"min_tokens":4)");
  take(generation, text_events("abab"));
  EXPECT_EQ(generation.usage().completion_tokens, 4);
  std::vector<TokenEvent> events = text_events("xab");
  std::string out;
  EXPECT_EQ(generation.take(0, events, out), std::vector<int32_t>{0});
  take_one(generation, finish(FinishReason::kStop));
  const Json choice = Json::parse(generation.body())["choices"][0];
  EXPECT_EQ(choice["text"], "ababx");
  EXPECT_EQ(choice["stop_reason"], "ab");
}

// As in vLLM: what counts is where a stop string ends.
TEST_F(GenerationTest, AStopStringMayBeginInTheFirstMinTokens) {
  Generation generation = complete(R"(,"stop":["bc"],"min_tokens":2)");
  take(generation, text_events("abc"));
  take_one(generation, finish(FinishReason::kStop));
  EXPECT_EQ(Json::parse(generation.body())["choices"][0]["text"], "a");
}

TEST_F(GenerationTest, ATextThatEndsWithinMinTokensIsWhole) {
  Generation generation = complete(R"(,"stop":["ab"],"min_tokens":3,"max_tokens":3)");
  take(generation, text_events("cab"));
  take_one(generation, finish(FinishReason::kLength));
  const Json choice = Json::parse(generation.body())["choices"][0];
  EXPECT_EQ(choice["text"], "cab");
  EXPECT_EQ(choice["finish_reason"], "length");
}

TEST_F(GenerationTest, ACompletionStreamIsExact) {
  Generation generation = complete(R"(,"stream":true)");
  const std::string head =
      R"(data: {"id":"id-1","object":"text_completion","created":1234,"model":"tiny","service_tier":"default","choices":[)";
  EXPECT_EQ(take(generation, text_events("a")),
            head + R"({"index":0,"text":"a","logprobs":null,"finish_reason":null}]})" + "\n\n");
  EXPECT_EQ(
      take_one(generation, finish(FinishReason::kStop)),
      head + R"({"index":0,"text":"","logprobs":null,"finish_reason":"stop","stop_reason":null}]})"
             "\n\ndata: [DONE]\n\n");
  EXPECT_TRUE(generation.ended());
}

TEST_F(GenerationTest, AChatStreamIsRoleThenTextThenReasonThenUsage) {
  Generation generation = chat(R"(,"stream":true,"stream_options":{"include_usage":true})");
  const std::string head =
      R"(data: {"id":"id-1","object":"chat.completion.chunk","created":1234,"model":"tiny","service_tier":"default","choices":[)";
  const std::string end = "],\"usage\":null}\n\n";
  EXPECT_EQ(
      take(generation, text_events("a")),
      head +
          R"({"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null})" +
          end + head +
          R"({"index":0,"delta":{"content":"a"},"logprobs":null,"finish_reason":null})" + end);
  EXPECT_EQ(
      take_one(generation, finish(FinishReason::kStop, 4)),
      head + R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","stop_reason":null})" +
          end + head +
          R"(],"usage":{"prompt_tokens":19,"total_tokens":20,"completion_tokens":1,)"
          R"("prompt_tokens_details":{"cached_tokens":4}}})"
          "\n\ndata: [DONE]\n\n");
}

TEST_F(GenerationTest, TheLastTokenAndItsReasonShareAChunk) {
  Generation generation = chat(R"(,"stream":true)");
  std::vector<TokenEvent> events = text_events("ab");
  events.push_back(finish(FinishReason::kLength));
  const std::vector<Json> chunks = documents(take(generation, std::move(events)));
  ASSERT_EQ(chunks.size(), 4U);  // role, a, b with the reason, [DONE]
  EXPECT_EQ(chunks[2]["choices"][0]["delta"]["content"], "b");
  EXPECT_EQ(chunks[2]["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(chunks[3], "[DONE]");
}

TEST_F(GenerationTest, EveryTokenIsAChunkAndNoCharacterIsCut) {
  Generation generation = complete(R"(,"stream":true)");
  const std::vector<Json> chunks = documents(take(generation, text_events("😀!")));
  ASSERT_EQ(chunks.size(), 5U);
  std::string text;
  for (const Json& chunk : chunks) {
    text += chunk["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(text, "😀!");
  EXPECT_EQ(chunks[0]["choices"][0]["text"], "");
}

TEST_F(GenerationTest, AnUnfinishedCharacterIsRepairedAtTheEnd) {
  Generation generation = complete(R"(,"stream":true)");
  take(generation, text_events("a\xf0\x9f"));
  const std::vector<Json> chunks = documents(take_one(generation, finish(FinishReason::kLength)));
  EXPECT_EQ(chunks[0]["choices"][0]["text"], "\uFFFD");
  EXPECT_EQ(chunks[0]["choices"][0]["finish_reason"], "length");
}

TEST_F(GenerationTest, ContinuousUsageCountsTheChoice) {
  Generation generation = chat(
      R"(,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true})");
  const std::vector<Json> chunks = documents(take(generation, text_events("ab")));
  ASSERT_EQ(chunks.size(), 3U);
  EXPECT_EQ(chunks[0]["usage"]["completion_tokens"], 0);
  EXPECT_EQ(chunks[1]["usage"]["completion_tokens"], 1);
  EXPECT_EQ(chunks[2]["usage"]["completion_tokens"], 2);
  EXPECT_EQ(chunks[2]["usage"]["total_tokens"], 21);
  for (const Json& chunk : chunks) {
    EXPECT_FALSE(chunk["usage"].contains("prompt_tokens_details")) << "not known yet";
  }
  const std::vector<Json> last = documents(take_one(generation, finish(FinishReason::kLength, 4)));
  ASSERT_EQ(last.size(), 3U);  // the reason, the whole usage, [DONE]
  EXPECT_EQ(last[0]["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
  EXPECT_EQ(last[1]["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
}

TEST_F(GenerationTest, AStopStringAcrossTokensEndsTheChoiceAtOnce) {
  Generation generation =
      complete(R"(,"stream":true,"stop":["END"],"stream_options":{"include_usage":true})");
  std::string out;
  std::vector<TokenEvent> first = text_events("xEN");
  EXPECT_TRUE(generation.take(0, first, out).empty());
  std::vector<TokenEvent> second = text_events("Dsurplus");
  EXPECT_EQ(generation.take(0, second, out), (std::vector<int32_t>{0}));
  EXPECT_FALSE(generation.ended());
  std::vector<Json> chunks = documents(out);
  ASSERT_EQ(chunks.size(), 4U);
  EXPECT_EQ(chunks[0]["choices"][0]["text"], "x");
  EXPECT_EQ(chunks[1]["choices"][0]["text"], "");
  EXPECT_EQ(chunks[2]["choices"][0]["text"], "");
  EXPECT_EQ(chunks[3]["choices"][0]["text"], "");
  EXPECT_EQ(chunks[3]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(chunks[3]["choices"][0]["stop_reason"], "END");
  // The engine's end comes later and gives no second reason; surplus tokens are not billed.
  chunks = documents(take_one(generation, finish(FinishReason::kStop)));
  ASSERT_EQ(chunks.size(), 2U);
  EXPECT_TRUE(chunks[0]["choices"].empty());
  EXPECT_EQ(chunks[0]["usage"]["completion_tokens"], 4);
  EXPECT_EQ(chunks[1], "[DONE]");
}

TEST_F(GenerationTest, WhatOnlyBeganAStopStringIsSentInTheEnd) {
  Generation generation = complete(R"(,"stop":"END")");
  take(generation, text_events("xEN"));
  take_one(generation, finish(FinishReason::kLength));
  EXPECT_EQ(Json::parse(generation.body())["choices"][0]["text"], "xEN");
}

TEST_F(GenerationTest, StopStringsCanBeShown) {
  Generation generation = complete(R"(,"stop":"END","include_stop_str_in_output":true)");
  std::string out;
  std::vector<TokenEvent> events = text_events("xENDy");
  EXPECT_EQ(generation.take(0, events, out).size(), 1U);
  take_one(generation, finish(FinishReason::kStop));
  EXPECT_EQ(Json::parse(generation.body())["choices"][0]["text"], "xEND");
}

TEST_F(GenerationTest, OnlyTheClientsStopIdsAreReasons) {
  TokenEvent end = finish(FinishReason::kStop);
  end.finish->stop_token = 'q';
  Generation asked = complete(R"(,"stop_token_ids":[113])");
  take_one(asked, std::move(end));
  EXPECT_EQ(Json::parse(asked.body())["choices"][0]["stop_reason"], 'q');
  end = finish(FinishReason::kStop);
  end.finish->stop_token = ByteTokenizer::kEos;
  Generation plain = complete("");
  take_one(plain, std::move(end));
  EXPECT_TRUE(Json::parse(plain.body())["choices"][0]["stop_reason"].is_null());
}

TEST_F(GenerationTest, ChoicesOfSeveralPromptsAreNumberedThrough) {
  auto parsed =
      parse_generation(Endpoint::kCompletions, R"({"prompt":["a","bc"],"n":2})", test_.context);
  ASSERT_TRUE(parsed.ok());
  Generation generation(*parsed, {.id = "i"}, test_.tokenizer);
  std::string out;
  for (size_t prompt = 0; prompt < 2; ++prompt) {
    for (int32_t choice = 0; choice < 2; ++choice) {
      std::vector<TokenEvent> events;
      events.push_back(token_event(static_cast<TokenId>('0' + 2 * prompt) + choice, choice));
      events.push_back(finish_event(FinishReason::kLength, choice));
      std::ignore = generation.take(prompt, events, out);
    }
  }
  const Json body = Json::parse(generation.body());
  ASSERT_EQ(body["choices"].size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["text"], std::to_string(i));
  }
  EXPECT_EQ(body["usage"]["prompt_tokens"], 2 + 3);
  EXPECT_EQ(body["usage"]["completion_tokens"], 4);
}

TEST_F(GenerationTest, LogprobsOfCompletionsAreListsSideBySide) {
  Generation generation = complete(R"(,"logprobs":2)");
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  take_one(generation, with_logprobs(ByteTokenizer::kHello,
                                     {{ByteTokenizer::kHello, -0.5F}, {'a', -kInfinity}}));
  take_one(generation, with_logprobs(0xC3, {{'b', -0.25F}, {0xC4, -0.5F}}));
  take_one(generation, with_logprobs(0xA9, {{'b', -0.25F}, {'c', -0.5F}}));
  take_one(generation, with_logprobs('"', {}));
  take_one(generation, finish(FinishReason::kLength));
  const Json logprobs = Json::parse(generation.body())["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs.dump(), R"({"text_offset":[0,5,5,6],"token_logprobs":[-0.5,-0.5,-0.5,-0.5],)"
                             R"("tokens":["hello","bytes:\\xc3","bytes:\\xa9","\""],)"
                             R"("top_logprobs":[{"hello":-0.5,"a":-9999},)"
                             R"({"b":-0.25,"bytes:\\xc4":-0.5,"bytes:\\xc3":-0.5},)"
                             R"({"b":-0.25,"c":-0.5,"bytes:\\xa9":-0.5},{"\"":-0.5}]})");
}

TEST_F(GenerationTest, LogprobsOfChatHaveBytes) {
  Generation generation = chat(R"(,"stream":true,"logprobs":true,"top_logprobs":1)");
  const std::vector<Json> chunks =
      documents(take_one(generation, with_logprobs(0xC3, {{'b', -0.25F}, {'c', -0.5F}})));
  ASSERT_EQ(chunks.size(), 2U);
  EXPECT_EQ(chunks[1]["choices"][0]["logprobs"].dump(),
            "{\"content\":[{\"token\":\"\uFFFD\",\"logprob\":-0.5,\"bytes\":[195],"
            "\"top_logprobs\":[{\"token\":\"b\",\"logprob\":-0.25,\"bytes\":[98]}]}]}");
}

TEST_F(GenerationTest, TokensCanBeNamedByIds) {
  Generation generation = complete(R"(,"logprobs":0,"return_tokens_as_token_ids":true)");
  take_one(generation, with_logprobs('a', {}));
  take_one(generation, finish(FinishReason::kLength));
  EXPECT_EQ(Json::parse(generation.body())["choices"][0]["logprobs"]["tokens"][0], "token_id:97");
}

TEST_F(GenerationTest, AFailureEndsTheStreamWithAnError) {
  Generation generation = chat(R"(,"stream":true)");
  take(generation, text_events("a"));
  TokenEvent failure = finish(FinishReason::kError);
  failure.finish->error = "device lost";
  const std::vector<Json> chunks = documents(take_one(generation, std::move(failure)));
  ASSERT_EQ(chunks.size(), 2U);
  EXPECT_EQ(chunks[0]["error"]["message"], "the request failed: device lost");
  EXPECT_EQ(chunks[1], "[DONE]");
  EXPECT_TRUE(generation.ended());
  EXPECT_TRUE(generation.error().has_value());
  EXPECT_EQ(take(generation, text_events("late")), "");
}

TEST_F(GenerationTest, TheServiceTierThatWasUsedIsNamed) {
  GenerationRequest request = parse(Endpoint::kChat, R"(,"service_tier":"auto")");
  request.service_tier = "flex";
  Generation generation(request, {.id = "id-1", .created_unix_seconds = 1}, test_.tokenizer);
  take_one(generation, finish(FinishReason::kStop));
  EXPECT_EQ(Json::parse(generation.body())["service_tier"], "flex");
}

}  // namespace
}  // namespace tandem::openai
