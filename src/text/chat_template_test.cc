#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "jinja/test_support.h"
#include "text/test_vocabularies.h"

namespace tandem::text {
namespace {

using Json = nlohmann::ordered_json;
using jinja::testing::kNow;
using testing::read_all;
using testing::TempFolder;

ChatTemplate must_parse(const std::string& source, ChatTemplateOptions options = {}) {
  Result<ChatTemplate> parsed = ChatTemplate::parse(source, std::move(options));
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  return std::move(parsed).value();
}

class GoldenTemplates : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTemplates, RenderAsJinja2DoesTextAndErrors) {
  REQUIRE_SHARED_FOLDER(shared);
  const std::string name = GetParam();
  const Json golden = Json::parse(read_all(shared / "templates" / (name + ".json")));
  ChatTemplateOptions options;
  options.bos_token = golden["bos_token"];
  options.eos_token = golden["eos_token"];
  const ChatTemplate parsed =
      must_parse(read_all(shared / "templates" / (name + ".jinja")), options);
  ASSERT_GE(golden["cases"].size(), 10U);
  for (const Json& c : golden["cases"]) {
    if (name.ends_with("-tool_use") && c["tools"].is_null()) {
      continue;  // such templates are for requests with tools; they iterate over what is then None
    }
    ChatTemplateInput input;
    input.messages = &c["messages"];
    input.tools = &c["tools"];
    input.add_generation_prompt = c["add_generation_prompt"];
    input.now = kNow;
    const Result<std::string> text = parsed.render(input);
    if (c.contains("text")) {
      ASSERT_TRUE(text.ok()) << c["case"] << ": " << text.error().message;
      EXPECT_EQ(*text, c["text"].get<std::string>()) << c["case"];
    } else {
      ASSERT_FALSE(text.ok()) << c["case"];
      EXPECT_EQ(text.error().code, ErrorCode::kInvalidArgument);
      EXPECT_EQ("TemplateError: " + text.error().message, c["error"].get<std::string>())
          << c["case"];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shared, GoldenTemplates,
    ::testing::Values("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "Qwen-Qwen2.5-7B-Instruct",
                      "deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "google-gemma-2-2b-it",
                      "meta-llama-Llama-2-chat", "meta-llama-Llama-3.1-8B-Instruct",
                      "meta-llama-Llama-3.2-3B-Instruct", "microsoft-Phi-3.5-mini-instruct",
                      "mistralai-Mistral-Nemo-Instruct-2407"));

class ChatTemplateTest : public ::testing::Test {
 protected:
  Result<std::string> render(const ChatTemplate& chat) {
    ChatTemplateInput input;
    input.messages = &messages_;
    input.tools = &tools_;
    input.extra = &extra_;
    input.now = kNow;
    return chat.render(input);
  }
  std::string text(const ChatTemplate& chat) {
    const Result<std::string> rendered = render(chat);
    return rendered.ok() ? *rendered : "error: " + rendered.error().message;
  }

  Json messages_ = Json::parse(R"([{"role": "user", "content": "hi"}])");
  Json tools_;
  Json extra_;
};

TEST_F(ChatTemplateTest, AbsentToolsAndDocumentsAreNoneAndKeysKeepTheirOrder) {
  const ChatTemplate chat = must_parse(
      "{{ tools is defined }} {{ tools is none }} {{ documents is none }} {{ tools[0]|tojson if "
      "tools }}{{ documents|tojson }}");
  EXPECT_EQ(text(chat), "True True True null");
  tools_ = Json::parse(R"([{"z": 1, "a": {"y": 2, "b": 3}}])");
  extra_ = Json::parse(R"({"documents": [1]})");
  EXPECT_EQ(text(chat), R"(True False False {"z": 1, "a": {"y": 2, "b": 3}}[1])");
}

TEST_F(ChatTemplateTest, ToolsChooseTheToolTemplate) {
  ChatTemplateOptions options;
  options.tool_use_source = "with tools";
  const ChatTemplate chat = must_parse("without", options);
  EXPECT_EQ(text(chat), "without");
  tools_ = Json::array();
  EXPECT_EQ(text(chat), "without");
  tools_ = Json::parse(R"([{"type": "function"}])");
  EXPECT_EQ(text(chat), "with tools");
}

TEST_F(ChatTemplateTest, ExtraVariablesReachTheTemplateAndWinOverTokens) {
  ChatTemplateOptions options;
  options.bos_token = "<s>";
  options.other_tokens = {{"pad_token", "<pad>"}};
  const ChatTemplate chat = must_parse(
      "{{ bos_token }}{{ eos_token is defined }}{{ pad_token }}{{ enable_thinking }}", options);
  EXPECT_EQ(text(chat), "<s>False<pad>");
  extra_ = Json::parse(R"({"enable_thinking": false, "bos_token": "<b>"})");
  EXPECT_EQ(text(chat), "<b>False<pad>False");
}

TEST_F(ChatTemplateTest, WrongInputNamesItsField) {
  const ChatTemplate chat = must_parse("x");
  messages_ = Json::parse(R"([{"role": "user"}, 5])");
  EXPECT_EQ(render(chat).error().param, "messages");
  EXPECT_EQ(text(chat), "error: messages[1] must be an object");
  messages_ = Json::object();
  EXPECT_EQ(render(chat).error().param, "messages");
  messages_ = Json::array();
  tools_ = "no list";
  EXPECT_EQ(render(chat).error().param, "tools");
  tools_ = nullptr;
  extra_ = Json::parse(R"({"messages": []})");
  EXPECT_EQ(render(chat).error().param, "chat_template_kwargs");
  extra_ = 7;
  EXPECT_EQ(render(chat).error().param, "chat_template_kwargs");
}

TEST_F(ChatTemplateTest, TimeComesFromTheCaller) {
  EXPECT_EQ(text(must_parse("{{ strftime_now('%d %b %Y %H:%M') }}")), "15 Jan 2026 12:00");
}

TEST_F(ChatTemplateTest, ThePlainTemplateIsALinePerMessage) {
  ChatTemplateOptions options;
  options.bos_token = "<s>";
  const ChatTemplate chat = ChatTemplate::plain(options);
  EXPECT_TRUE(chat.is_plain());
  messages_ =
      Json::parse(R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"},
                              {"role": "assistant", "content": null}])");
  EXPECT_EQ(text(chat), "<s>system: Be brief.\nuser: hi\nassistant: \nassistant:");
}

TEST_F(ChatTemplateTest, ManyThreadsRenderOneTemplate) {
  const ChatTemplate chat =
      must_parse("{% for m in messages %}{{ ('a' ~ m.content)|upper }}{% endfor %}");
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (std::string& out : texts) {
    threads.emplace_back([&out, &chat, this] {
      for (int i = 0; i < 50; ++i) out = text(chat);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& out : texts) EXPECT_EQ(out, "AHI");
}

TEST_F(ChatTemplateTest, AFolderWithoutATemplateGetsThePlainOne) {
  const TempFolder folder;
  const Result<ChatTemplate> chat = load_chat_template(folder.path());
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  EXPECT_TRUE(chat->is_plain());
  EXPECT_EQ(load_chat_template(folder.path() / "absent").error().code, ErrorCode::kNotFound);
}

TEST_F(ChatTemplateTest, TheConfigGivesTheTemplateAndItsTokens) {
  const TempFolder folder;
  folder.write(
      "tokenizer_config.json",
      R"({"chat_template": "{{ bos_token }}{{ eos_token }}{{ unk_token }}", "bos_token": {"content": "<s>"},
                   "eos_token": "</s>", "pad_token": null})");
  folder.write("special_tokens_map.json", R"({"eos_token": "<other>", "unk_token": "<unk>"})");
  const Result<ChatTemplate> chat = load_chat_template(folder.path());
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  EXPECT_FALSE(chat->is_plain());
  EXPECT_EQ(text(*chat), "<s></s><unk>");
}

TEST_F(ChatTemplateTest, AListOfTemplatesIsReadByName) {
  const TempFolder folder;
  folder.write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"},
                                     {"name": "rag", "template": "{% if"}]})");
  const Result<ChatTemplate> chat = load_chat_template(folder.path());
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  EXPECT_EQ(text(*chat), "D");
  tools_ = Json::parse("[{}]");
  EXPECT_EQ(text(*chat), "T");
}

TEST_F(ChatTemplateTest, ATemplateFileGoesBeforeTheConfig) {
  const TempFolder folder;
  folder.write("tokenizer_config.json", R"({"chat_template": "config"})");
  folder.write("chat_template.json", R"({"chat_template": "json"})");
  folder.write("chat_template.jinja", "file\n");
  EXPECT_EQ(text(load_chat_template(folder.path()).value()), "file");
  std::filesystem::remove(folder.path() / "chat_template.jinja");
  EXPECT_EQ(text(load_chat_template(folder.path()).value()), "config");
  std::filesystem::remove(folder.path() / "tokenizer_config.json");
  EXPECT_EQ(text(load_chat_template(folder.path()).value()), "json");
}

TEST_F(ChatTemplateTest, AGivenTemplateTakesThePlaceOfTheFoldersAndHasItsTokens) {
  const TempFolder folder;
  folder.write("tokenizer_config.json", R"({"chat_template": "config", "bos_token": "<s>"})");
  folder.write("mine.jinja", "{{ bos_token }}file");
  const std::string file = (folder.path() / "mine.jinja").string();
  EXPECT_EQ(text(load_chat_template(folder.path(), file).value()), "<s>file");
  EXPECT_EQ(text(load_chat_template(folder.path(), "{{ bos_token }}itself").value()), "<s>itself");
  for (const auto& [given, said] : {std::pair("none.jinja", "neither a file nor a template"),
                                    std::pair("{% if", "the template")}) {
    const Result<ChatTemplate> chat = load_chat_template(folder.path(), given);
    ASSERT_FALSE(chat.ok()) << given;
    EXPECT_NE(chat.error().message.find(said), std::string::npos) << chat.error().message;
  }
}

TEST_F(ChatTemplateTest, BrokenFoldersNameFileAndField) {
  for (const char* config : {R"({"chat_template": 5})", R"({"chat_template": [5]})",
                             R"({"chat_template": [{"name": 1}]})",
                             R"({"chat_template": [{"name": "rag", "template": "x"}]})",
                             R"({"chat_template": "{% if"})", R"([])", R"({"chat)"}) {
    const TempFolder folder;
    folder.write("tokenizer_config.json", config);
    const Result<ChatTemplate> chat = load_chat_template(folder.path());
    ASSERT_FALSE(chat.ok()) << config;
    EXPECT_EQ(chat.error().code, ErrorCode::kInvalidArgument) << config;
    EXPECT_NE(chat.error().message.find("tokenizer_config.json"), std::string::npos)
        << chat.error().message;
  }
}

}  // namespace
}  // namespace tandem::text
