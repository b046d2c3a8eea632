#include "openai/json_builder.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "base/thread_time.h"
#include "openai/json_input.h"

namespace tandem::openai {
namespace {

// A random value; keys are few, so that they repeat.
std::string random_json(std::mt19937& random, int depth) {
  switch (random() % (depth > 4 ? 6 : 9)) {
    case 0:
      return "null";
    case 1:
      return random() % 2 == 0 ? "true" : "false";
    case 2:
      return std::to_string(static_cast<int32_t>(random()));
    case 3:
      return "18446744073709551615";
    case 4:
      return "1.5e-3";
    case 5:
      return R"("a\u00e9\n")";
    case 6: {
      std::string list = "[";
      for (uint32_t i = random() % 4; i > 0; --i) {
        list += random_json(random, depth + 1) + (i > 1 ? "," : "");
      }
      return list + "]";
    }
    default: {
      std::string object = "{";
      for (uint32_t i = random() % 30; i > 0; --i) {
        object += "\"key" + std::to_string(random() % 20) + "\":" + random_json(random, depth + 1) +
                  (i > 1 ? "," : "");
      }
      return object + "}";
    }
  }
}

TEST(JsonBuilder, BuildsWhatTheLibraryBuilds) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const std::string text = R"({"a":)" + random_json(random, 0) + "}";
    const Result<Json> parsed = parse_object(text, {});
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(parsed->dump(), Json::parse(text).dump()) << text;
  }
}

TEST(JsonBuilder, ErrorsAreTheLibrarys) {
  for (const std::string text : {"{", R"({"a":1e999})", R"({"a" 1})", R"({"a":1,})", "{]", "",
                                 R"({"a":"\ud800"})", R"([1,2)", R"({"a":1}x)"}) {
    std::string message;
    try {
      std::ignore = Json::parse(text);
    } catch (const Json::exception& error) {
      message = error.what();
    }
    JsonBuilder builder;
    EXPECT_FALSE(Json::sax_parse(text, &builder));
    EXPECT_EQ(builder.error(), message);
  }
}

Nanos work_of(const std::string& body) {
  Nanos best = Nanos::max();
  for (int i = 0; i < 5; ++i) {
    const Nanos begin = thread_time();
    EXPECT_TRUE(parse_object(body, {}).ok());
    best = std::min(best, thread_time() - begin);
  }
  return best;
}

// As many keys in one object as in a hundred.
TEST(JsonBuilder, LargeObjectsCostWhatSmallOnesDo) {
  const auto body = [](int objects, int keys) {
    std::string list;
    for (int i = 0; i < objects; ++i) {
      std::string object;
      for (int key = 0; key < keys; ++key) {
        object += (key == 0 ? "\"" : ",\"") + std::to_string(key + 1000) + "\":0";
      }
      list += (i == 0 ? "{" : ",{") + object + "}";
    }
    return R"({"x":[)" + list + "]}";
  };
  EXPECT_LT(work_of(body(10, 4000)), 10 * work_of(body(1000, 40)));
}

TEST(JsonBuilder, ListsAndObjectsCountAsValues) {
  std::string nested;
  for (int i = 0; i < 10; ++i) {
    nested += (i == 0 ? "" : ",") + std::string(30, '[') + std::string(30, ']');
  }
  const std::string body = R"({"x":[)" + nested + "]}";
  EXPECT_TRUE(parse_object(body, {.max_values = 312}).ok());
  const auto refused = parse_object(body, {.max_values = 311});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("more than 311 values"), std::string::npos);
}

}  // namespace
}  // namespace tandem::openai
