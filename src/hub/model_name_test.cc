#include "hub/model_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::hub {
namespace {

using ::testing::HasSubstr;

TEST(ModelName, HasRepositoryRevisionAndFile) {
  const auto plain = parse_model_name("org/Model-1.5B");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(*plain, (ModelName{"org/Model-1.5B", "main", ""}));
  EXPECT_EQ(plain->text(), "org/Model-1.5B");

  const auto revision = parse_model_name("org/model@refs/pr/1");
  ASSERT_TRUE(revision.ok());
  EXPECT_EQ(*revision, (ModelName{"org/model", "refs/pr/1", ""}));

  const auto file = parse_model_name("org/model-GGUF@v1.0:folder/model-Q8_0.gguf");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(*file, (ModelName{"org/model-GGUF", "v1.0", "folder/model-Q8_0.gguf"}));
  EXPECT_EQ(file->text(), "org/model-GGUF@v1.0:folder/model-Q8_0.gguf");
}

TEST(ModelName, WhatCouldLeaveItsFolderIsRefused) {
  for (const char* text : {"",
                           "model",
                           "org/",
                           "/model",
                           "org/model/more",
                           "../model",
                           "org/..",
                           "org/a..b",
                           "org/a--b",
                           "-org/model",
                           "org/model-",
                           "org/.model",
                           "org/model.git",
                           "org/mo del",
                           "org/mod\x1b[31mel",
                           "org/model@",
                           "org/model@../x",
                           "org/model@/x",
                           "org/model@a//b",
                           "org/model@-x",
                           "org/model@a b",
                           "org/model:",
                           "org/model:a.bin",
                           "org/model:../a.gguf",
                           "org/model:/a.gguf",
                           "org/model:a\\b.gguf",
                           "org/modèle"}) {
    const auto name = parse_model_name(text);
    ASSERT_FALSE(name.ok()) << text;
    EXPECT_THAT(name.error().message, HasSubstr("is not a model's name"));
    EXPECT_EQ(name.error().message.find('\x1b'), std::string::npos);
  }
  EXPECT_FALSE(parse_model_name(std::string("org/mo\0del", 10)).ok());
  EXPECT_FALSE(parse_model_name("org/" + std::string(100, 'a')).ok());
  EXPECT_FALSE(parse_model_name("org/model@" + std::string(300, 'a')).ok());
}

TEST(ModelName, PathsDoNotLookLikeOne) {
  EXPECT_TRUE(looks_like_model_name("org/model"));
  EXPECT_TRUE(looks_like_model_name("org/model@main:a/b.gguf"));
  for (const char* path :
       {"", "model", "./org/model", "../model", "~/model", "/org/model", "a/b/c", "org/"}) {
    EXPECT_FALSE(looks_like_model_name(path)) << path;
  }
}

TEST(ModelName, SafePathsStayBelowAFolder) {
  for (const char* path : {"config.json", "a/b/c.gguf", "model (copy)", "x+y=z"}) {
    EXPECT_TRUE(stays_inside(path)) << path;
  }
  for (const char* path : {"", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "a\nb", "a\\b"}) {
    EXPECT_FALSE(stays_inside(path)) << path;
    EXPECT_FALSE(is_safe_path(path)) << path;
  }
  EXPECT_FALSE(is_safe_path("model (copy)"));
  EXPECT_FALSE(is_safe_path("$HOME"));
  EXPECT_FALSE(stays_inside(std::string(2000, 'a')));
}

TEST(ModelName, CommitsAreWholeHashes) {
  EXPECT_TRUE(is_commit("0123456789abcdef0123456789abcdef01234567"));
  EXPECT_FALSE(is_commit("0123456789abcdef"));
  EXPECT_FALSE(is_commit("0123456789ABCDEF0123456789abcdef01234567"));
}

}  // namespace
}  // namespace tandem::hub
