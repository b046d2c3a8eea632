#include "openai/json_input.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "openai/error_body.h"
#include "openai/json_output.h"

namespace tandem::openai {
namespace {

std::string error_of(std::string_view body) {
  const Result<Json> parsed = parse_object(body, {});
  return parsed.ok() ? "" : parsed.error().message;
}

TEST(JsonInput, AnObjectIsParsedInTheClientsOrder) {
  const Result<Json> parsed = parse_object(R"({"z":1,"a":[2,{"b":null}]})", {});
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->dump(), R"({"z":1,"a":[2,{"b":null}]})");
}

TEST(JsonInput, WhatIsNotAnObjectIsRefused) {
  EXPECT_NE(error_of("[]").find("must be a JSON object"), std::string::npos);
  EXPECT_EQ(error_of(""), "the request body is empty; send a JSON object");
  EXPECT_EQ(error_of(" \r\n"), "the request body is empty; send a JSON object");
  EXPECT_NE(error_of("{").find("not valid JSON"), std::string::npos);
  EXPECT_NE(error_of(R"({"a":1}x)").find("not valid JSON"), std::string::npos);
  EXPECT_NE(error_of(R"({"a":NaN})").find("not valid JSON"), std::string::npos);
  EXPECT_NE(error_of(R"({"a":Infinity})").find("not valid JSON"), std::string::npos);
  EXPECT_NE(error_of(R"({"a":1e999})").find("not valid JSON"), std::string::npos);
  EXPECT_NE(error_of(R"({"a":"\ud800"})").find("not valid JSON"), std::string::npos);
}

TEST(JsonInput, ErrorsNameTheTextAndThePlaceInIt) {
  EXPECT_NE(
      error_of("{\"a\":}").find("the request body is not valid JSON: parse error at column 6"),
      std::string::npos)
      << error_of("{\"a\":}");
  EXPECT_NE(error_of("{\n\"a\":}").find("at line 2, column 5"), std::string::npos)
      << error_of("{\n\"a\":}");
  EXPECT_NE(error_of("\n").find("is empty"), std::string::npos);
  for (const std::string& text : {std::string(), std::string("{"), std::string("[]"),
                                  std::string("\xff"), R"({"a":)" + std::string(99, '[')}) {
    const Result<Json> parsed = parse_object(text, {}, "the line");
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_TRUE(parsed.error().message.starts_with("the line ")) << parsed.error().message;
  }
}

TEST(JsonInput, InvalidUtf8IsRefusedWithItsPlace) {
  EXPECT_NE(error_of("{\"a\":\"\xff\"}").find("not valid UTF-8 at byte 6"), std::string::npos);
  EXPECT_NE(error_of("{\"a\":\"\xc3\"}").find("not valid UTF-8"), std::string::npos);
  EXPECT_NE(error_of("{\"a\":\"\xed\xa0\x80\"}").find("not valid UTF-8"), std::string::npos);
}

TEST(JsonInput, DepthIsLimitedBeforeAnythingIsBuilt) {
  const std::string deep = R"({"a":)" + std::string(100000, '[');
  EXPECT_NE(error_of(deep).find("deeper than 64"), std::string::npos);
  const std::string braces_in_text = R"({"a":")" + std::string(100, '[') + R"(\"{{"})";
  EXPECT_EQ(error_of(braces_in_text), "");
}

TEST(JsonInput, KeysPerObjectAreLimited) {
  std::string many = "{";
  for (int i = 0; i < 5000; ++i) {
    many += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":0";
  }
  many += "}";
  EXPECT_NE(error_of(many).find("more than 4096 keys"), std::string::npos);
}

TEST(JsonInput, IntegersAreExact) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(as_integer(Json(5), 0, 9), 5);
  EXPECT_EQ(as_integer(Json(5.0), 0, 9), 5);
  EXPECT_EQ(as_integer(Json(kMax), kMin, kMax), kMax);
  EXPECT_EQ(as_integer(Json(kMin), kMin, kMax), kMin);
  EXPECT_EQ(as_integer(Json(uint64_t{1} << 63), kMin, kMax), std::nullopt);
  EXPECT_EQ(as_integer(Json(1e300), kMin, kMax), std::nullopt);
  EXPECT_EQ(as_integer(Json(5.5), 0, 9), std::nullopt);
  EXPECT_EQ(as_integer(Json(10), 0, 9), std::nullopt);
  EXPECT_EQ(as_integer(Json(true), 0, 9), std::nullopt);
  EXPECT_EQ(as_integer(Json("5"), 0, 9), std::nullopt);
}

TEST(JsonInput, ErrorsNameFieldWishAndValue) {
  const Json object = {{"seed", "abc"}, {"top_p", 1.5}, {"stream", 1}, {"gone", nullptr}};
  const FieldReader fields(object);
  const auto seed = fields.integer("seed", 0, 9);
  ASSERT_FALSE(seed.ok());
  EXPECT_EQ(seed.error().message, "'seed' must be an integer from 0 to 9, not the string \"abc\"");
  EXPECT_EQ(seed.error().param, "seed");
  const auto top_p = fields.number("top_p", {.low = 0.0, .high = 1.0});
  ASSERT_FALSE(top_p.ok());
  EXPECT_EQ(top_p.error().message, "'top_p' must be a number from 0 to 1, not the number 1.5");
  const auto stream = FieldReader(object, "x.").boolean("stream");
  ASSERT_FALSE(stream.ok());
  EXPECT_EQ(stream.error().message, "'x.stream' must be true or false, not the number 1");
  EXPECT_EQ(stream.error().param, "x.stream");
  EXPECT_FALSE(fields.string("gone")->has_value());
  EXPECT_FALSE(fields.string("absent")->has_value());
}

TEST(JsonOutput, StringsAreEscaped) {
  std::string out;
  append_string(out, std::string_view("a\"b\\c\n\t\r\b\f\x01\x1f\0\x7f é😀/", 22));
  EXPECT_EQ(out, "\"a\\\"b\\\\c\\n\\t\\r\\b\\f\\u0001\\u001f\\u0000\x7f é😀/\"");
  EXPECT_EQ(Json::parse(out).get<std::string>().size(), 22U);
  out.clear();
  append_untrusted_string(out, "a\xff");
  EXPECT_EQ(out, "\"a\uFFFD\"");
}

TEST(JsonOutput, LogprobsAreAlwaysNumbers) {
  const auto shown = [](float value) {
    std::string out;
    append_logprob(out, value);
    return out;
  };
  EXPECT_EQ(shown(-0.5F), "-0.5");
  EXPECT_EQ(shown(0.0F), "0");
  EXPECT_EQ(shown(-std::numeric_limits<float>::infinity()), "-9999");
  EXPECT_EQ(shown(std::numeric_limits<float>::quiet_NaN()), "-9999");
  EXPECT_TRUE(Json::accept(shown(-1.5e-7F)));
}

TEST(ErrorBody, HasOpenAisShape) {
  EXPECT_EQ(error_body(invalid_argument("'n' is \"wrong\"", "n")),
            R"({"error":{"message":"'n' is \"wrong\"","type":"invalid_request_error",)"
            R"("param":"n","code":null}})");
  EXPECT_EQ(error_body({ErrorCode::kNotFound, "none", ""}, "model_not_found"),
            R"({"error":{"message":"none","type":"invalid_request_error",)"
            R"("param":null,"code":"model_not_found"}})");
  EXPECT_TRUE(Json::accept(error_body({ErrorCode::kInternal, "\xff\n", ""})));
}

TEST(ErrorBody, StatusFollowsTheCode) {
  EXPECT_EQ(http_status(ErrorCode::kInvalidArgument, {}), 400);
  EXPECT_EQ(http_status(ErrorCode::kUnsupported, {}), 400);
  EXPECT_EQ(http_status(ErrorCode::kUnauthenticated, {}), 401);
  EXPECT_EQ(http_status(ErrorCode::kNotFound, {}), 404);
  EXPECT_EQ(http_status(ErrorCode::kOverloaded, {}), 429);
  EXPECT_EQ(http_status(ErrorCode::kOverloaded, {.overload_status = 529}), 529);
  EXPECT_EQ(http_status(ErrorCode::kUnavailable, {}), 503);
  EXPECT_EQ(http_status(ErrorCode::kInternal, {}), 500);
}

TEST(JsonInput, AnErrorDoesNotRepeatTheBody) {
  const auto refused = parse_object(R"({"a":")" + std::string(100000, 'x'), {});
  ASSERT_FALSE(refused.ok());
  EXPECT_LT(refused.error().message.size(), 300U);
}

TEST(JsonInput, TheNumberOfValuesIsBounded) {
  const JsonLimits limits{.max_values = 5};  // the object, the list and three numbers
  EXPECT_TRUE(parse_object(R"({"a":[1,2,3]})", limits).ok());
  EXPECT_TRUE(parse_object(R"({"a":"1,2,3,4,5"})", limits).ok());
  const auto refused = parse_object(R"({"a":[1,2,3,4]})", limits);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("more than 5 values"), std::string::npos);
}

}  // namespace
}  // namespace tandem::openai
