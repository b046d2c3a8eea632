#include "openai/batch_line.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tandem::openai {
namespace {

BatchLine parse(std::string_view line) { return parse_batch_line(line, {}); }

TEST(BatchLine, AChatLineGivesItsBodyAndEndpoint) {
  const BatchLine line = parse(
      R"({"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"messages":[],"x":1}})");
  ASSERT_FALSE(line.error.has_value()) << line.error->message;
  EXPECT_EQ(line.custom_id, "a");
  EXPECT_EQ(line.endpoint, Endpoint::kChat);
  EXPECT_EQ(line.body, R"({"messages":[],"x":1})");
}

TEST(BatchLine, AMissingMethodMeansPost) {
  const BatchLine line = parse(R"({"custom_id":"a","url":"/v1/completions","body":{}})");
  EXPECT_FALSE(line.error.has_value());
  EXPECT_EQ(line.endpoint, Endpoint::kCompletions);
}

struct BadLine {
  const char* line;
  const char* code;
  bool has_custom_id;
};

TEST(BatchLine, WhatIsWrongIsNamedAndTheCustomIdKeptWhereItCanBeRead) {
  const BadLine bad[] = {
      {"", "invalid_json", false},
      {"[1]", "invalid_json", false},
      {"{\"custom_id\":\"\xff\"}", "invalid_json", false},
      {R"({"url":"/v1/completions","body":{}})", "invalid_custom_id", false},
      {R"({"custom_id":7,"url":"/v1/completions","body":{}})", "invalid_custom_id", false},
      {R"({"custom_id":"","url":"/v1/completions","body":{}})", "invalid_custom_id", false},
      {R"({"custom_id":"a","method":"GET","url":"/v1/completions","body":{}})", "invalid_method",
       true},
      {R"({"custom_id":"a","url":"/v1/embeddings","body":{}})", "invalid_url", true},
      {R"({"custom_id":"a","body":{}})", "invalid_url", true},
      {R"({"custom_id":"a","url":"/v1/completions"})", "invalid_body", true},
      {R"({"custom_id":"a","url":"/v1/completions","body":"x"})", "invalid_body", true},
      {R"({"custom_id":"a","url":"/v1/completions","body":{"stream":true}})", "invalid_body", true},
  };
  for (const BadLine& row : bad) {
    const BatchLine line = parse(row.line);
    ASSERT_TRUE(line.error.has_value()) << row.line;
    EXPECT_EQ(line.error_code, row.code) << row.line;
    EXPECT_FALSE(line.error->message.empty()) << row.line;
    EXPECT_EQ(line.custom_id.has_value(), row.has_custom_id) << row.line;
  }
}

TEST(BatchLine, AnErrorSpeaksOfTheLine) {
  const std::string message = parse(R"({"custom_id":})").error->message;
  EXPECT_TRUE(message.starts_with("the line is not valid JSON: parse error at column 14"))
      << message;
}

TEST(BatchLine, DepthIsThatOfTheBody) {
  const auto nested = [](int depth) {
    return R"({"custom_id":"a","url":"/v1/completions","body":{"x":)" +
           std::string(static_cast<size_t>(depth), '[') +
           std::string(static_cast<size_t>(depth), ']') + "}}";
  };
  EXPECT_FALSE(parse_batch_line(nested(7), {.max_depth = 8}).error.has_value());
  EXPECT_TRUE(parse_batch_line(nested(8), {.max_depth = 8}).error.has_value());
  EXPECT_TRUE(parse(nested(100000)).error.has_value());
}

TEST(BatchLine, RequestIdsComeBack) {
  const BatchLineId id{7, 0xc0ffee};
  EXPECT_EQ(batch_request_id(id), "batch_req_7_0000000000c0ffee");
  EXPECT_EQ(parse_batch_request_id(batch_request_id(id)), id);
  for (const char* text :
       {"", "batch_req_", "batch_req_7", "batch_req_7_c0ffee", "batch_req_0_0000000000c0ffee",
        "batch_req_-1_0000000000c0ffee", "batch_req_99999999999999999999_0000000000c0ffee",
        "batch_req_7_0000000000c0ffeg", "batch_req_7_0000000000c0ffee0"}) {
    EXPECT_FALSE(parse_batch_request_id(text).has_value()) << text;
  }
}

TEST(BatchLine, OutputLinesAreJsonAndComeBack) {
  const BatchLineId id{3, hash_of_line("abc")};
  const std::string answered = answered_batch_line(id, "q\"1", 200, R"({"choices":[]})");
  EXPECT_EQ(answered.back(), '\n');
  const Json json = Json::parse(answered);
  EXPECT_EQ(json["custom_id"], "q\"1");
  EXPECT_EQ(json["response"]["status_code"], 200);
  EXPECT_TRUE(json["error"].is_null());
  const auto written = parse_written_batch_line(answered);
  ASSERT_TRUE(written.ok());
  EXPECT_EQ(written->id, id);
  EXPECT_EQ(written->custom_id, "q\"1");
  EXPECT_FALSE(written->failed);

  const auto refused = parse_written_batch_line(answered_batch_line(id, "a", 400, "{}"));
  ASSERT_TRUE(refused.ok());
  EXPECT_TRUE(refused->failed);

  const std::string failed = failed_batch_line(id, std::nullopt, "invalid_json", "bad \xff bytes");
  EXPECT_TRUE(Json::parse(failed)["response"].is_null());
  const auto again = parse_written_batch_line(failed);
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->failed);
  EXPECT_FALSE(again->custom_id.has_value());
  EXPECT_EQ(again->error_code, "invalid_json");
}

TEST(BatchLine, AnAnswerOfAnySizeComesBack) {
  std::string body = R"({"choices":[{"logprobs":{"id":"x","custom_id":"y","top":[0)";
  for (int i = 0; i < 5'000'000; ++i) {
    body += ",0";
  }
  body += "," + std::string(2000, '[') + std::string(2000, ']') + R"(]}}],"error":{"code":"z"}})";
  const BatchLineId id{3, hash_of_line("abc")};
  const auto written = parse_written_batch_line(answered_batch_line(id, "a", 200, body));
  ASSERT_TRUE(written.ok());
  EXPECT_EQ(written->id, id);
  EXPECT_EQ(written->custom_id, "a");
  EXPECT_FALSE(written->failed);
  EXPECT_EQ(written->error_code, "");
}

TEST(BatchLine, AHashCanBeMadeOfPieces) {
  EXPECT_EQ(hash_of_line("defg", hash_of_line("abc")), hash_of_line("abcdefg"));
  EXPECT_EQ(hash_of_line(""), kHashOfNothing);
}

TEST(BatchLine, ForeignLinesAreNotTakenForOutput) {
  for (const char* line :
       {"", "{}", "[]", "hello", R"({"id":"batch_req_abc","response":null})",
        R"({"id":7,"response":null})", R"([{"id":"batch_req_7_0000000000c0ffee","response":null}])",
        R"({"id":"batch_req_7_0000000000c0ffee","response":null)",
        R"({"x":{"id":"batch_req_7_0000000000c0ffee"},"response":null})",
        R"({"id":["batch_req_7_0000000000c0ffee"],"response":null})",
        R"({"id":"batch_req_7_0000000000c0ffee","error":null})",
        R"({"custom_id":"a","url":"/v1/completions","body":{}})"}) {
    EXPECT_FALSE(parse_written_batch_line(line).ok()) << line;
  }
}

}  // namespace
}  // namespace tandem::openai
