#include "cli/config_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace tandem::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

bool same(const ConfigNode& a, const ConfigNode& b) {
  return a.key == b.key && a.kind == b.kind && a.text == b.text &&
         std::equal(a.inner.begin(), a.inner.end(), b.inner.begin(), b.inner.end(), same);
}

std::string error_of(const std::string& text) {
  const Result<ConfigNode> node = parse_config(text, "f.yaml");
  return node.ok() ? "" : node.error().message;
}

TEST(ConfigFile, EachKeyKnowsItsLine) {
  const auto root = parse_config("a: 1\n\nlist:\n  - x\n  - {k: v}\nnone:\n", "f.yaml");
  ASSERT_TRUE(root.ok()) << root.error().message;
  ASSERT_EQ(root->inner.size(), 3U);
  EXPECT_EQ(root->inner[0].text, "1");
  EXPECT_EQ(root->inner[1].line, 3);
  ASSERT_EQ(root->inner[1].inner.size(), 2U);
  EXPECT_EQ(root->inner[1].inner[1].line, 5);
  EXPECT_EQ(root->inner[1].inner[1].inner[0].key, "k");
  EXPECT_EQ(root->inner[2].kind, ConfigNode::Kind::kNothing);
}

TEST(ConfigFile, WhatIsWrittenReadsAsTheSame) {
  const auto root = parse_config(
      "a: 1\nb: \"x: y # z\\n\\t\\\\ \\\" ü\"\nc: [1, 'null', {d: ~, e: [on]}]\nf: []\n"
      "'odd key:': -5\ng: ''\n",
      "f.yaml");
  ASSERT_TRUE(root.ok()) << root.error().message;
  const std::string text = config_text(*root);
  const auto again = parse_config(text, "g.yaml");
  ASSERT_TRUE(again.ok()) << again.error().message << text;
  EXPECT_TRUE(same(*root, *again)) << text;
}

TEST(ConfigFile, FlagsOfKeysAndLists) {
  CommandLine line;
  std::string host;
  std::vector<std::string> keys;
  line.root().add_option("--api-host", host, "");
  line.root().add_option("--keys", keys, "");
  const auto flags_of = [&](const std::string& text) {
    return config_flags(*parse_config(text, "f.yaml"), "f.yaml", line.root());
  };
  EXPECT_THAT(*flags_of("api_host: x\nkeys: [a, b]\n"),
              ElementsAre("--api-host=x", "--keys=a", "--keys=b"));
  EXPECT_THAT(flags_of("\napi-hots: x\n").error().message,
              HasSubstr("unknown key 'api-hots' in the config file 'f.yaml' (line 2), did you mean "
                        "api-host?"));
  EXPECT_THAT(flags_of("keys:\n").error().message, HasSubstr("has no value"));
  EXPECT_THAT(flags_of("keys: {a: b}\n").error().message, HasSubstr("takes a text"));
}

TEST(ConfigFile, WhatIsNoMapOfOptionsIsRefused) {
  EXPECT_THAT(error_of("- a\n"), HasSubstr("must hold keys and values"));
  EXPECT_THAT(error_of(""), HasSubstr("must hold keys and values"));
  EXPECT_THAT(error_of("a: 1\nb: [1\n"), HasSubstr("'f.yaml' cannot be read: line "));
  EXPECT_THAT(error_of("? [a]\n: b\n"), HasSubstr("line 1 is not a word"));
  EXPECT_THAT(error_of("a: [[[[[[[[[[]]]]]]]]]]\n"), HasSubstr("levels"));
}

TEST(ConfigFile, AnchorsDoNotGrowWithoutBound) {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 7; ++i) {
    text += fmt::format("a{0}: &a{0} [*a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}]\n", i,
                        i - 1);
  }
  EXPECT_THAT(error_of(text), HasSubstr("holds more than"));
}

TEST(ConfigFile, FilesThatCannotBeRead) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path();
  EXPECT_THAT(read_config_text(folder).error().message, HasSubstr("it is a folder"));
  EXPECT_THAT(read_config_text(folder / "tandem-no-such-file.yaml").error().message,
              HasSubstr("there is no such file"));
}

}  // namespace
}  // namespace tandem::cli
