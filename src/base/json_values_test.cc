#include "base/json_values.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace tandem {
namespace {

using nlohmann::json;

TEST(JsonValues, BracketsInStringsAreNotNesting) {
  EXPECT_FALSE(json_nests_deeper("", 0));
  EXPECT_FALSE(json_nests_deeper(R"([{"a":[]}])", 3));
  EXPECT_TRUE(json_nests_deeper(R"([{"a":[]}])", 2));
  EXPECT_FALSE(json_nests_deeper(R"(["[[[\"[[[\\"])", 1));
  EXPECT_TRUE(json_nests_deeper(R"(["\\",[]])", 1));
  EXPECT_FALSE(json_nests_deeper("[][][]", 1));
  EXPECT_TRUE(json_nests_deeper(std::string(1'000'000, '['), 64));
}

TEST(JsonValues, NullAndAbsentMembersAreTheSame) {
  const json object = json::parse(R"({"a":1,"b":null})");
  ASSERT_NE(json_member(object, "a"), nullptr);
  EXPECT_EQ(*json_member(object, "a"), 1);
  EXPECT_EQ(json_member(object, "b"), nullptr);
  EXPECT_EQ(json_member(object, "c"), nullptr);
}

TEST(JsonValues, IntegersAreOf64Bits) {
  const auto read = [](const char* text) { return json_integer(json::parse(text)); };
  EXPECT_EQ(read("7"), 7);
  EXPECT_EQ(read("-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(read("9223372036854775807"), INT64_MAX);
  for (const char* text : {"9223372036854775808", "18446744073709551616", "3.0", "1e3", "true",
                           "\"7\"", "null", "[7]"}) {
    EXPECT_EQ(read(text), std::nullopt) << text;
  }
}

TEST(JsonValues, AFieldIsAbsentConvertedOrWrong) {
  const json object = json::parse(R"({"a":true,"b":null,"c":"text","d":7})");
  const auto wrong = [](const json& value) {
    return invalid_argument(std::string("not ") + value.type_name());
  };
  const auto boolean = [&](const char* key) {
    return json_field(object, key, json_boolean<json>, wrong);
  };
  EXPECT_EQ(boolean("a").value(), std::optional(true));
  EXPECT_EQ(boolean("b").value(), std::nullopt);
  EXPECT_EQ(boolean("z").value(), std::nullopt);
  ASSERT_FALSE(boolean("c").ok());
  EXPECT_EQ(boolean("c").error().message, "not string");
  const auto text = [&](const char* key) {
    return json_field(object, key, json_string<json>, wrong);
  };
  EXPECT_EQ(text("c").value(), std::optional<std::string>("text"));
  EXPECT_FALSE(text("d").ok());
  EXPECT_EQ(json_field(object, "d", json_integer<json>, wrong).value(), std::optional<int64_t>(7));
  EXPECT_FALSE(json_field(object, "a", json_integer<json>, wrong).ok());
}

}  // namespace
}  // namespace tandem
