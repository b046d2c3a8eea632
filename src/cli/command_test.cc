#include "cli/command.h"

#include <gtest/gtest.h>

namespace tandem::cli {
namespace {

struct Values {
  std::string name = "none";
  int32_t count = 3;
  double share = 0;
  std::optional<int64_t> limit;
  std::vector<std::string> keys;
  bool check = false;
};

void describe(Command command, Values& values) {
  command.add_option("--name", values.name, "Its name").capture_default_str().one_of({"a", "b"});
  command.add_option("--count", values.count, "How many").capture_default_str().in_range(1, 9);
  command.add_option("--share", values.share, "Of all").in_range(0.0, 1.0);
  command.add_option("--limit", values.limit, "At most");
  command.add_option("--key", values.keys, "A key");
  command.add_flag("--check", values.check, "Only check");
}

std::string parse_error(const std::vector<std::string>& arguments) {
  Values values;
  CommandLine line;
  describe(line.root(), values);
  const Result<std::optional<int>> done = line.parse(arguments);
  return done.ok() ? "" : done.error().message;
}

TEST(CommandLine, SetsVariablesOfEveryType) {
  Values values;
  CommandLine line;
  describe(line.root(), values);
  const auto done = line.parse({"--name", "b", "--count=4", "--share", "0.5", "--limit",
                                "5000000000", "--key", "x", "--key", "y", "--check"});
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_FALSE(done->has_value());
  EXPECT_EQ(values.name, "b");
  EXPECT_EQ(values.count, 4);
  EXPECT_EQ(values.share, 0.5);
  EXPECT_EQ(values.limit, 5'000'000'000);
  EXPECT_EQ(values.keys, (std::vector<std::string>{"x", "y"}));
  EXPECT_TRUE(values.check);
}

TEST(CommandLine, RefusesValuesThatFailTheirChecks) {
  EXPECT_EQ(parse_error({}), "");
  EXPECT_NE(parse_error({"--count", "10"}).find("--count"), std::string::npos);
  EXPECT_NE(parse_error({"--name", "c"}).find("--name"), std::string::npos);
  EXPECT_NE(parse_error({"--share", "1.5"}).find("--share"), std::string::npos);
  EXPECT_NE(parse_error({"--share", "nan"}).find("--share"), std::string::npos);
  EXPECT_NE(parse_error({"--name", "a", "--name", "b"}).find("--name"), std::string::npos);
}

TEST(CommandLine, SaysWhatAMissingOptionIs) {
  CommandLine line;
  std::string model;
  const Command command = line.root().add_subcommand("measure", "Measures");
  command.add_option("--model", model, "Folder of a model").required();
  const Result<std::optional<int>> done = line.parse({"measure"});
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().message, "--model is required: Folder of a model");
}

TEST(CommandLine, ValuesSayWhatWasGiven) {
  Values values;
  CommandLine line;
  describe(line.root(), values);
  ASSERT_TRUE(line.parse({"--key", "x"}).ok());
  std::vector<std::string> texts;
  for (const GivenOption& value : line.root().values()) {
    texts.push_back(value.name + "=" + value.default_text +
                    (value.given.empty() ? "" : "|" + value.given.front()));
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"help=", "name=none", "count=3",
                                             "share=", "limit=", "key=|x", "check="}));
}

TEST(CommandLine, TheChosenSubcommandRuns) {
  CommandLine line("Test", "test");
  bool ran = false;
  const Command make = line.root().add_subcommand("make", "Make");
  make.callback([&ran] { ran = true; });
  line.root().require_subcommand();
  EXPECT_TRUE(line.root().find_subcommand("make") == make);
  EXPECT_FALSE(line.root().find_subcommand("info"));
  ASSERT_TRUE(line.parse({"make"}).ok());
  EXPECT_TRUE(make.parsed());
  EXPECT_TRUE(ran);
}

TEST(CommandLine, FunctionsMayRefuseOrEnd) {
  CommandLine line;
  line.root().add_option_function<std::string>(
      "--size", [](const std::string& text) { refuse("--size", "'" + text + "' is too large"); },
      "");
  line.root().add_flag_callback(
      "--list", [] { end_parse(); }, "Lists");
  const auto refused = line.parse({"--size", "9"});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "--size: '9' is too large");
  const auto ended = line.parse({"--list"});
  ASSERT_TRUE(ended.ok()) << ended.error().message;
  EXPECT_EQ(*ended, 0);
}

TEST(CommandLine, TheLastValueWinsIfAllowed) {
  Values values;
  CommandLine line;
  describe(line.root(), values);
  line.root().let_last_win();
  ASSERT_TRUE(line.parse({"--name", "a", "--name", "b"}).ok());
  EXPECT_EQ(values.name, "b");
}

TEST(CommandLine, HelpShowsKindDefaultAndGroup) {
  Values values;
  CommandLine line;
  describe(line.root(), values);
  line.root().group_new_options("Things");
  const std::string help = line.help();
  EXPECT_NE(help.find("Things"), std::string::npos) << help;
  EXPECT_NE(help.find("--name a|b"), std::string::npos) << help;
  EXPECT_NE(help.find("How many [3]"), std::string::npos) << help;
}

}  // namespace
}  // namespace tandem::cli
