#include "chat/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tandem::chat {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Conversation, SendsAllThatWasSaid) {
  Conversation talk({.model = "m",
                     .service_class = "best_effort",
                     .system = "Be brief.",
                     .max_tokens = 7,
                     .temperature = 0.0});
  talk.ask("Hello");
  talk.answered("Hi!");
  talk.ask("Never mind");
  talk.forget_question();
  talk.ask("Bye \xFF");
  const json body = json::parse(talk.request_body());
  EXPECT_EQ(body["messages"], json::parse(R"([{"role": "system", "content": "Be brief."},
                            {"role": "user", "content": "Hello"},
                            {"role": "assistant", "content": "Hi!"},
                            {"role": "user", "content": "Bye \ufffd"}])"));
  EXPECT_EQ(body["service_tier"], "flex");
  EXPECT_EQ(body["max_tokens"], 7);
  EXPECT_EQ(body["temperature"], 0.0);
  EXPECT_EQ(body["stream"], true);
  talk.restart();
  talk.ask("Again");
  EXPECT_EQ(json::parse(talk.request_body())["messages"].size(), 2U);
}

TEST(Conversation, LeavesToTheServerWhatIsNotGiven) {
  Conversation talk({.model = "m"});
  talk.ask("Hello");
  const json body = json::parse(talk.request_body());
  EXPECT_FALSE(body.contains("service_tier"));
  EXPECT_FALSE(body.contains("max_tokens"));
  EXPECT_FALSE(body.contains("temperature"));
}

std::string event(std::string_view data) { return "data: " + std::string(data) + "\n\n"; }

TEST(Answer, IsShownAsItComesAndMeasured) {
  Answer answer(milliseconds(100));
  std::string shown;
  const auto show = [&](std::string_view text) { shown += text; };
  ASSERT_TRUE(answer
                  .feed(event(R"({"choices": [{"delta": {"role": "assistant", "content": ""}}]})"),
                        milliseconds(150), show)
                  .ok());
  EXPECT_EQ(answer.summary(), "");
  ASSERT_TRUE(
      answer
          .feed(event(R"({"choices": [{"delta": {"content": "Hel"}}], "service_tier": "flex"})"),
                milliseconds(200), show)
          .ok());
  ASSERT_TRUE(
      answer.feed(event(R"({"choices": [{"delta": {"content": "lo"}}]})"), milliseconds(700), show)
          .ok());
  EXPECT_FALSE(answer.ended());
  ASSERT_TRUE(
      answer
          .feed(
              event(R"({"choices": [{"delta": {}, "finish_reason": "length"}]})") +
                  event(
                      R"({"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 6}})") +
                  event("[DONE]"),
              milliseconds(800), show)
          .ok());
  EXPECT_EQ(shown, "Hello");
  EXPECT_EQ(answer.text(), "Hello");
  EXPECT_TRUE(answer.ended());
  EXPECT_EQ(
      answer.summary(),
      "first token after 100.00 ms, 10.0 tokens/s, 6 tokens, best_effort, cut at the limit of "
      "tokens");
}

TEST(Answer, ReasoningIsShownAndNotKept) {
  Answer answer(milliseconds(0));
  std::string shown;
  const auto show = [&](std::string_view text) { shown += text; };
  const auto piece = [](std::string_view key, std::string_view text) {
    return event(
        json{{"choices", {{{"delta", {{key, text}}}}}}, {"service_tier", "default"}}.dump());
  };
  ASSERT_TRUE(answer.feed(piece("reasoning_content", "Hm."), milliseconds(1), show).ok());
  EXPECT_TRUE(answer.has_begun());
  EXPECT_EQ(answer.text(), "");
  ASSERT_TRUE(answer.feed(piece("content", "4"), milliseconds(2), show).ok());
  ASSERT_TRUE(answer.feed(piece("content", "2"), milliseconds(3), show).ok());
  EXPECT_EQ(shown, "Hm.\n\n42");
  EXPECT_EQ(answer.text(), "42");
  EXPECT_THAT(answer.summary(), Not(HasSubstr("latency_sensitive"))) << "not a class of Tandem";
}

TEST(Answer, EndsWithTheServersError) {
  Answer answer(milliseconds(0));
  const auto ignore = [](std::string_view) {};
  const Status failed =
      answer.feed(event(R"({"error": {"message": "the engine failed"}})"), milliseconds(1), ignore);
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.error().message, HasSubstr("the engine failed"));
  EXPECT_FALSE(Answer(milliseconds(0)).feed("data: <html>\n\n", milliseconds(1), ignore).ok());
}

TEST(ModelIds, AreThoseOfTheList) {
  const auto ids =
      model_ids(R"({"object": "list", "data": [{"id": "a"}, {"id": 7}, 8, {"id": "b"}]})");
  ASSERT_TRUE(ids.ok());
  EXPECT_THAT(*ids, ElementsAre("a", "b"));
  for (const char* other : {"", "[]", "{}", R"({"data": []})", R"({"data": {}})"}) {
    EXPECT_FALSE(model_ids(other).ok()) << other;
  }
}

}  // namespace
}  // namespace tandem::chat
