#include "cli/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/manual.h"
#include "cli/outline.h"

namespace tandem::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Outline, completion scripts and manual page of one command line. tests/e2e/test_completion.py has
// the shells and man(1) read what the program writes.
class Completion : public ::testing::Test {
 protected:
  Completion() {
    serve_.add_option("model,--model,-m", model_, "Folder");
    serve_.add_option("--port", port_, "Where: 1 to 65535 [any]").capture_default_str();
    serve_.add_option("--dtype", type_, "The model's type").one_of({"bf16", "fp32"}).group("Model");
    serve_.add_option("--key", keys_, "A key");
    serve_.add_flag("--check", check_, ".end at once");
    serve_.add_option("--old", "Not shown").group("");
    const Command kernels =
        line_.root().add_subcommand("bench", "Measure").add_subcommand("kernels", "Products");
    kernels.add_option("shell", shell_, "Which").one_of({"one", "two"}).required();
  }

  static const OptionOutline& option(const CommandOutline& command, const std::string& flag) {
    for (const OptionOutline& each : command.options) {
      if (std::ranges::count(each.flags, flag) > 0) {
        return each;
      }
    }
    ADD_FAILURE() << "no option " << flag;
    return command.options.front();
  }

  CommandLine line_{"Test: tries things", "test"};
  Command serve_ = line_.root().add_subcommand("serve", "Serve a model");
  std::string model_, type_, shell_;
  int32_t port_ = 8000;
  std::vector<std::string> keys_;
  bool check_ = false;
};

TEST_F(Completion, TheOutlineHasWhatTheHelpShows) {
  const CommandOutline test = outline(line_.root());
  ASSERT_EQ(test.commands.size(), 2U);
  const CommandOutline& serve = test.commands[0];
  EXPECT_EQ(serve.path, "test serve");
  EXPECT_EQ(serve.options.size(), 6U);  // with --help, without --old
  EXPECT_THAT(option(serve, "--help").flags, ElementsAre("-h", "--help"));
  EXPECT_EQ(option(serve, "--model").place, "model");
  EXPECT_EQ(option(serve, "--port").value, ValueKind::kNumber);
  EXPECT_EQ(option(serve, "--port").default_text, "8000");
  EXPECT_EQ(option(serve, "--check").value, ValueKind::kNone);
  EXPECT_EQ(option(serve, "--dtype").value, ValueKind::kChoice);
  EXPECT_THAT(option(serve, "--dtype").choices, ElementsAre("bf16", "fp32"));
  EXPECT_TRUE(option(serve, "--key").takes_many);
  EXPECT_EQ(test.commands[1].commands.at(0).path, "test bench kernels");
}

TEST_F(Completion, TheScriptForBashHasEachCommandFlagAndChoice) {
  const std::string script = bash_completion(outline(line_.root()));
  EXPECT_THAT(script, HasSubstr("\"test serve\"|\"test bench\"|\"test bench kernels\") path+="));
  EXPECT_THAT(script, HasSubstr("\"test words\") COMPREPLY=($(compgen -W 'serve bench'"));
  EXPECT_THAT(script, HasSubstr("\"test bench kernels words\") COMPREPLY=($(compgen -W 'one two'"));
  EXPECT_THAT(script, HasSubstr("\"test serve --dtype\") COMPREPLY=($(compgen -W 'bf16 fp32'"));
  EXPECT_THAT(script, HasSubstr("\"test serve --port\") compopt +o default"));
  EXPECT_THAT(script, HasSubstr("--check"));
  EXPECT_THAT(script, Not(HasSubstr("--old")));
}

TEST_F(Completion, TheScriptForZshEscapesWhatItsSpecificationsRead) {
  const std::string script = zsh_completion(outline(line_.root()));
  EXPECT_THAT(script, ::testing::StartsWith("#compdef test\n"));
  EXPECT_THAT(script, HasSubstr("'(--port)--port=[Where\\: 1 to 65535 \\[any\\]]:number: '"));
  EXPECT_THAT(script, HasSubstr("'(--dtype)--dtype=[The model'\\''s type]:value:(bf16 fp32)'"));
  EXPECT_THAT(script, HasSubstr("'*--key=[A key]:value:_files'"));
  EXPECT_THAT(script, HasSubstr("'(-m --model)-m+[Folder]:value:_files'"));
  EXPECT_THAT(script, HasSubstr("        bench) _test_bench ;;"));
  EXPECT_THAT(script, HasSubstr("':shell:(one two)'"));
  EXPECT_THAT(script, Not(HasSubstr("--old")));
}

TEST_F(Completion, TheManualNamesEveryOptionWithItsDefault) {
  const std::string page =
      manual_page(outline(line_.root()), "1.2", {{"EXIT STATUS", "It is 0.\n\n  a \\ b"}});
  EXPECT_THAT(page, HasSubstr(".TH \"TEST\" 1 \"\" \"test 1.2\""));
  EXPECT_THAT(page, HasSubstr("test \\- tries things\n"));
  EXPECT_THAT(page, HasSubstr(".SH \"TEST SERVE\"\n"));
  EXPECT_THAT(page, HasSubstr(".SH \"TEST BENCH KERNELS\"\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-port\\fR \\fIN\\fR\nWhere: 1 to 65535 [any] [8000]\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-dtype\\fR \\fIbf16|fp32\\fR\nThe model\\(aqs type\n"));
  EXPECT_THAT(page, HasSubstr("\n\\&.end at once\n"));  // else a request of roff
  EXPECT_THAT(page, HasSubstr(".SH \"EXIT STATUS\"\nIt is 0.\n.PP\n.PP\n.nf\n  a \\e b\n.fi\n"));
  EXPECT_THAT(page, HasSubstr("\\fIshell\\fR: \\fIone|two\\fR\nWhich\n"));
  EXPECT_THAT(page, Not(HasSubstr("\\-old")));
}

}  // namespace
}  // namespace tandem::cli
