#include "loadgen/stream_chunk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::loadgen {
namespace {

using ::testing::HasSubstr;

TEST(StreamChunk, CompletionAndChatChunksBringTokens) {
  EXPECT_TRUE(
      read_chunk(R"({"choices":[{"index":0,"text":" the","finish_reason":null}]})")->has_token);
  EXPECT_TRUE(read_chunk(R"({"choices":[{"index":0,"delta":{"content":"x"}}]})")->has_token);
  EXPECT_TRUE(read_chunk(R"({"choices":[{"delta":{"reasoning_content":"x"}}]})")->has_token);
}

TEST(StreamChunk, TheOpeningAndClosingChunksBringNone) {
  EXPECT_FALSE(
      read_chunk(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})")->has_token);
  const StreamChunk last =
      *read_chunk(R"({"choices":[{"delta":{"content":""},"finish_reason":"length"}]})");
  EXPECT_FALSE(last.has_token);
  EXPECT_EQ(last.finish_reason, "length");
  EXPECT_FALSE(read_chunk(R"({"choices":[{"delta":{},"finish_reason":"stop"}]})")->has_token);
}

TEST(StreamChunk, AnEmptyTextBetweenThemIsATokenThatNobodySeesYet) {
  const StreamChunk chunk = *read_chunk(R"({"choices":[{"text":"","finish_reason":null}]})");
  EXPECT_TRUE(chunk.has_token);
  EXPECT_FALSE(chunk.has_text);
}

TEST(StreamChunk, UsageIsReadWithItsCachedTokens) {
  const StreamChunk chunk = *read_chunk(
      R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}})");
  ASSERT_TRUE(chunk.usage);
  EXPECT_EQ(chunk.usage->prompt_tokens, 7);
  EXPECT_EQ(chunk.usage->completion_tokens, 3);
  EXPECT_EQ(chunk.usage->cached_tokens, 4);
}

TEST(StreamChunk, WhatTheServerSaysOfItsServiceIsRead) {
  const StreamChunk chunk = *read_chunk(
      R"({"service_tier":"flex","choices":[],"usage":{"prompt_tokens":7,"tandem":{"choices":[
          {"index":0,"slo":{"met":false},"ttft_ms":12.5}]}}})");
  EXPECT_EQ(chunk.service_tier, "flex");
  EXPECT_EQ(chunk.usage->slo_met, false);
  EXPECT_EQ(chunk.usage->engine_ttft_ms, 12.5);
  for (const char* odd : {R"("x")", R"({"choices":[]})", R"({"choices":[3]})",
                          R"({"choices":[{"slo":{"met":1},"ttft_ms":"x"}]})"}) {
    const StreamChunk none = *read_chunk(
        std::string(R"({"service_tier":5,"choices":[],"usage":{"prompt_tokens":7,"tandem":)") +
        odd + "}}");
    EXPECT_TRUE(none.service_tier.empty());
    EXPECT_FALSE(none.usage->slo_met || none.usage->engine_ttft_ms) << odd;
  }
}

TEST(StreamChunk, DoneAndErrorsAreSeen) {
  EXPECT_TRUE(read_chunk("[DONE]")->is_end);
  EXPECT_EQ(read_chunk(R"({"error":{"message":"out of blocks"}})")->error, "out of blocks");
  EXPECT_EQ(read_chunk(R"({"error":"plain"})")->error, "plain");
  EXPECT_FALSE(read_chunk(R"({"error":{}})")->error.empty());
}

TEST(StreamChunk, EverythingElseIsAnError) {
  for (const char* text : {"", "hello", "[]", "{}", "{\"choices\":", "{\"choices\":{}}", "\xff"}) {
    EXPECT_FALSE(read_chunk(text).ok()) << text;
  }
}

TEST(StreamChunk, OddTypesAreNoCrash) {
  for (const char* text :
       {R"({"choices":[1]})", R"({"choices":[{"delta":3}]})", R"({"choices":[{"text":5}]})",
        R"({"choices":[],"usage":{"prompt_tokens":"x"}})",
        R"({"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":-5}})",
        R"({"choices":[],"usage":[]})", R"({"choices":[{"finish_reason":{}}]})"}) {
    const Result<StreamChunk> chunk = read_chunk(text);
    ASSERT_TRUE(chunk.ok()) << text;
    EXPECT_FALSE(chunk->has_token) << text;
    EXPECT_GE(chunk->usage.value_or(TokenUsage{}).completion_tokens, 0) << text;
  }
}

TEST(StreamChunk, ErrorBodiesGiveTheirMessageOrTheirBeginning) {
  EXPECT_EQ(error_message(R"({"error":{"message":"too long"}})"), "too long");
  EXPECT_THAT(error_message("<html>bad\x01 gateway"), HasSubstr("<html>bad? gateway"));
  EXPECT_LE(error_message(std::string(100000, 'x')).size(), 300);
}

TEST(StreamChunk, MessagesAreCutBetweenCharactersAndAreUtf8) {
  for (size_t before = 290; before <= 302; ++before) {
    for (const std::string character : {"é", "€", "😀"}) {
      const std::string text = std::string(before, 'x') + character + character;
      const std::string shown = error_message(text);
      EXPECT_EQ(shown, text.substr(0, shown.size()));
      EXPECT_LE(shown.size(), 300U);
      const size_t of_characters = shown.size() - std::min(before, shown.size());
      EXPECT_EQ(of_characters % character.size(), 0U) << before << character;
    }
  }
  EXPECT_EQ(error_message("a\xff\xc3,\xed\xa0\x80\xf5z"), "a??,????z");
  EXPECT_EQ(error_message("cut \xe2\x82"), "cut ??");
}

TEST(StreamChunk, CountsThatNoAnswerHasAreNone) {
  for (const char* count : {"9223372036854775807", "18446744073709551615", "-1", "1e300"}) {
    const StreamChunk chunk = *read_chunk(
        std::string(R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":)") + count +
        R"(,"prompt_tokens_details":{"cached_tokens":)" + count + "}}}");
    EXPECT_EQ(chunk.usage->completion_tokens, 0) << count;
    EXPECT_EQ(chunk.usage->cached_tokens, 0) << count;
  }
}

}  // namespace
}  // namespace tandem::loadgen
