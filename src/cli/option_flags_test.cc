#include "cli/option_flags.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/arguments.h"
#include "options/option_values.h"

namespace tandem::cli {
namespace {

using namespace std::chrono_literals;

class OptionFlags : public ::testing::Test {
 protected:
  OptionFlags() {
    add_options(
        serve_,
        {{.name = "host", .group = "HTTP", .help = "Where", .value = values::text(host_)},
         {.name = "max-num-seqs",
          .unit = "sequences",
          .group = "Scheduling",
          .help = "How many",
          .value = values::whole(sequences_, values::WholeRange{1, 9}),
          .other_names = "--sequences"},
         {.name = "body", .group = "HTTP", .help = "Largest", .value = values::bytes(body_)},
         {.name = "idle", .group = "HTTP", .help = "Time", .value = values::duration(idle_)},
         {.name = "format",
          .group = "HTTP",
          .help = "Kind",
          .value = values::one_of(format_, {"text", "json"})},
         {.name = "key", .group = "HTTP", .help = "Keys", .value = values::texts(keys_)},
         {.name = "check", .group = "HTTP", .help = "Only", .value = values::switch_on(check_)}});
  }

  // Empty: it was parsed.
  std::string parse(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "serve");
    const Result<std::optional<int>> done = line_.parse(std::move(arguments));
    return done.ok() ? "" : done.error().message;
  }

  CommandLine line_{"Test", "test"};
  Command serve_ = line_.root().add_subcommand("serve", "Serve");
  std::string host_ = "localhost";
  int32_t sequences_ = 4;
  int64_t body_ = int64_t{32} << 20;
  Nanos idle_ = 75s;
  std::string format_ = "text";
  std::vector<std::string> keys_;
  bool check_ = false;
};

TEST_F(OptionFlags, SetTheVariables) {
  ASSERT_EQ(parse({"--host=a", "--sequences", "7", "--body", "1KiB", "--idle", "2s", "--format",
                   "json", "--key", "x", "--key", "y", "--check"}),
            "");
  EXPECT_EQ(host_, "a");
  EXPECT_EQ(sequences_, 7);
  EXPECT_EQ(body_, 1024);
  EXPECT_EQ(idle_, 2s);
  EXPECT_EQ(format_, "json");
  EXPECT_EQ(keys_, (std::vector<std::string>{"x", "y"}));
  EXPECT_TRUE(check_);
}

TEST_F(OptionFlags, AListTakesOneValueEachTime) {
  std::string model;
  serve_.add_option("model", model, "");
  ASSERT_EQ(parse({"--key", "x", "--key=y", "m", "--check"}), "");
  EXPECT_EQ(keys_, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(model, "m");
}

TEST_F(OptionFlags, AnEmptyValueTakesNoOther) {
  std::string model;
  serve_.add_option("model", model, "");
  ASSERT_EQ(parse({"--host=", "--key=", "m"}), "");
  EXPECT_EQ(host_, "");
  EXPECT_EQ(keys_, std::vector<std::string>{""});
  EXPECT_EQ(model, "m");
  EXPECT_EQ(parse({"--max-num-seqs=", "7"}),
            "--max-num-seqs: '' is not a whole number of 1 to 9 sequences");
}

TEST_F(OptionFlags, RefuseWrongValuesByName) {
  EXPECT_EQ(parse({"--max-num-seqs", "10"}),
            "--max-num-seqs: '10' is not a whole number of 1 to 9 sequences");
  EXPECT_EQ(parse({"--format", "xml"}), "--format: 'xml' is not possible; choose text or json");
  EXPECT_NE(parse({"--idle", "5"}).find("--idle: '5' has an unknown unit"), std::string::npos);
  EXPECT_NE(parse({"--body", "-1"}).find("--body: "), std::string::npos);
  EXPECT_EQ(sequences_, 4);
}

TEST_F(OptionFlags, TheHelpHasGroupsKindsAndDefaults) {
  CommandLine line;
  add_options(
      line.root(),
      {{.name = "max-num-seqs",
        .group = "Scheduling",
        .help = "How many",
        .value = values::whole(sequences_)},
       {.name = "steps",
        .unit = "steps",
        .help = "How far",
        .value = values::whole(sequences_, values::WholeRange{1, 9})},
       {.name = "body", .group = "HTTP", .help = "Largest", .value = values::bytes(body_)},
       {.name = "format",
        .group = "HTTP",
        .help = "Kind",
        .value = values::one_of(format_, {"text", "json"})},
       {.name = "check", .group = "HTTP", .help = "Only", .value = values::switch_on(check_)}});
  const std::string help = line.help();
  EXPECT_NE(help.find("Scheduling:\n"), std::string::npos) << help;
  EXPECT_NE(help.find("--max-num-seqs N"), std::string::npos) << help;
  EXPECT_NE(help.find("How many [4]\n"), std::string::npos) << help;
  EXPECT_NE(help.find("--body VALUE"), std::string::npos) << help;
  EXPECT_NE(help.find("How far (1 to 9 steps) [4]\n"), std::string::npos) << help;
  EXPECT_NE(help.find("Largest (at most 1024TiB) [32MiB]\n"), std::string::npos) << help;
  EXPECT_NE(help.find("--format text|json"), std::string::npos) << help;
  EXPECT_NE(help.find("Only\n"), std::string::npos) << help;
}

TEST_F(OptionFlags, AreKeysOfTheConfigurationFile) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / "tandem_option_flags_test.yaml";
  std::ofstream(path) << "max_num_seqs: 8\nbody: 2MiB\nkey: [a, b]\ncheck: true\n";
  const auto flags = expand_config({"--config", path.string()}, serve_);
  ASSERT_TRUE(flags.ok()) << flags.error().message;
  ASSERT_EQ(parse(*flags), "");
  EXPECT_EQ(sequences_, 8);
  EXPECT_EQ(body_, 2 << 20);
  EXPECT_EQ(keys_.size(), 2U);
  EXPECT_TRUE(check_);
  std::ofstream(path) << "max_num_seq: 8\n";
  const auto wrong = expand_config({"--config", path.string()}, serve_);
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("did you mean max-num-seqs?"), std::string::npos);
  std::ofstream(path) << "max_num_seqs: many\n";
  const auto broken = expand_config({"--config", path.string()}, serve_);
  ASSERT_TRUE(broken.ok());
  EXPECT_NE(parse(*broken).find("'many' is not a whole number of 1 to 9"), std::string::npos);
  std::filesystem::remove(path);
}

TEST_F(OptionFlags, AreVariablesOfTheEnvironment) {
  ::setenv("TANDEM_MAX_NUM_SEQS", "6", 1);  // NOLINT(concurrency-mt-unsafe): one thread
  ::setenv("TANDEM_IDLE", "9ms", 1);        // NOLINT(concurrency-mt-unsafe)
  ::setenv("TANDEM_CHECK", "true", 1);      // NOLINT(concurrency-mt-unsafe)
  name_environment(serve_);
  EXPECT_EQ(parse({"--idle", "3s"}), "");
  EXPECT_EQ(sequences_, 6);
  EXPECT_EQ(idle_, 3s) << "flags win";
  EXPECT_TRUE(check_);
  ::setenv("TANDEM_MAX_NUM_SEQS", "many", 1);  // NOLINT(concurrency-mt-unsafe)
  EXPECT_NE(parse({}).find("--max-num-seqs: 'many'"), std::string::npos);
  for (const char* name : {"TANDEM_MAX_NUM_SEQS", "TANDEM_IDLE", "TANDEM_CHECK"}) {
    ::unsetenv(name);  // NOLINT(concurrency-mt-unsafe)
  }
}

TEST_F(OptionFlags, AVariableOfASwitchIsTrueOrFalse) {
  for (const std::string value : {"maybe", "2", "99999999999999999999999"}) {
    CommandLine line;
    add_option(line.root(), {.name = "check", .help = "Only", .value = values::switch_on(check_)});
    ::setenv("TANDEM_CHECK", value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): one thread
    name_environment(line.root());
    const auto refused = line.parse({});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message,
              "--check: the variable TANDEM_CHECK is '" + value + "'; choose true or false");
  }
  ::setenv("TANDEM_CHECK", "maybe", 1);  // NOLINT(concurrency-mt-unsafe)
  name_environment(serve_);
  EXPECT_EQ(parse({"--check=false"}), "") << "the variable is not read";
  EXPECT_FALSE(check_);
  ::unsetenv("TANDEM_CHECK");  // NOLINT(concurrency-mt-unsafe)
}

}  // namespace
}  // namespace tandem::cli
