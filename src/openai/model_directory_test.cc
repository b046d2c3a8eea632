#include "openai/model_directory.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "openai/test_support.h"
#include "openai/token_routes.h"

namespace tandem::openai {
namespace {

// Two models: TestModel's, and "large" with a longer context and another template.
class ModelDirectoryTest : public ::testing::Test {
 protected:
  static ServedModel large_model() {
    ServedModel model = tiny_model();
    model.names = {"large"};
    model.root = "large-folder";
    model.max_model_len = 128;
    return model;
  }

  TestModel tiny_;
  const ServedModel large_ = large_model();
  ClosedFrontend large_frontend_{large_};
  const text::ChatTemplate plain_ = text::ChatTemplate::plain({});
  const ModelDirectory models_{std::vector<ModelServices>{{.frontend = tiny_.frontend,
                                                           .tokenizer = tiny_.tokenizer,
                                                           .chat_template = tiny_.chat_template,
                                                           .defaults = {}},
                                                          {.frontend = large_frontend_,
                                                           .tokenizer = tiny_.tokenizer,
                                                           .chat_template = plain_,
                                                           .defaults = {.max_tokens = 7}}},
                               {},
                               {}};
};

TEST_F(ModelDirectoryTest, NamesAndAliasesFindTheirModelAndNoNameTheFirst) {
  EXPECT_EQ(&models_.find("tiny").value()->frontend, &tiny_.frontend);
  EXPECT_EQ(&models_.find("small").value()->frontend, &tiny_.frontend);
  EXPECT_EQ(&models_.find("").value()->frontend, &tiny_.frontend);
  EXPECT_EQ(&models_.find("large").value()->frontend, &large_frontend_);
}

TEST_F(ModelDirectoryTest, AnUnknownNameIsToldAllThatThereAre) {
  const auto found = models_.find("huge");
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(found.error().param, "model");
  EXPECT_EQ(found.error().message,
            "the model 'huge' does not exist here; this server has 'tiny', 'small', 'large'");
  EXPECT_LT(models_.find(std::string(100'000, 'x')).error().message.size(), 1000U);
}

TEST_F(ModelDirectoryTest, ABodyIsReadByTheModelThatItNames) {
  const auto chat = [&](const std::string& model) {
    return parse_generation(
        Endpoint::kChat,
        R"({"messages":[{"role":"user","content":"hi"}],"model":")" + model + "\"}", models_);
  };
  const auto tiny = chat("small");
  ASSERT_TRUE(tiny.ok()) << tiny.error().message;
  EXPECT_EQ(&tiny->model->frontend, &tiny_.frontend);
  EXPECT_EQ(tiny->request.model, "small");
  EXPECT_EQ(tiny->request.max_tokens, std::nullopt);
  const auto large = chat("large");
  ASSERT_TRUE(large.ok()) << large.error().message;
  EXPECT_EQ(&large->model->frontend, &large_frontend_);
  EXPECT_EQ(large->request.model, "large");
  EXPECT_EQ(large->request.max_tokens, 7) << "its own defaults";
  EXPECT_NE(large->request.prompts, tiny->request.prompts) << "its own template";
  EXPECT_EQ(chat("huge").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(parse_generation(Endpoint::kChat, R"({"model":1})", models_).error().param, "model");
}

TEST_F(ModelDirectoryTest, TokensAndCardsAreThoseOfTheModelNamed) {
  EXPECT_NE(tokenize(R"({"model":"large","prompt":"ab"})", models_)->find("\"max_model_len\":128"),
            std::string::npos);
  EXPECT_NE(tokenize(R"({"prompt":"ab"})", models_)->find("\"max_model_len\":64"),
            std::string::npos);
  EXPECT_NE(model_card("large", models_)->find("large-folder"), std::string::npos);
  EXPECT_NE(model_card("small", models_)->find("tiny-folder"), std::string::npos);
  const std::string list = model_list(models_);
  EXPECT_LT(list.find("\"tiny\""), list.find("\"small\""));
  EXPECT_LT(list.find("\"small\""), list.find("\"large\""));
}

}  // namespace
}  // namespace tandem::openai
