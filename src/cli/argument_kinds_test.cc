#include "cli/argument_kinds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/command.h"

namespace tandem::cli {
namespace {

using ::testing::ElementsAre;

class ArgumentKinds : public ::testing::Test {
 protected:
  ArgumentKinds() {
    serve_.add_option("--model,model", model_, "");
    serve_.add_option("-o,--out", out_, "");
    serve_.add_option("--key", keys_, "").one_value_each();
    serve_.add_option("--rows", rows_, "");
    serve_.add_option("--goal", goals_, "").expected(1, 3);
    serve_.add_flag("--check,!--no-check", check_, "");
  }

  // "c" for a command, "o" for an option, "v" for a value, "p" for a place, "-" for "--".
  std::string kinds(const std::vector<std::string>& arguments) {
    std::string letters;
    for (const Argument& argument : classify(arguments, line_.root().app())) {
      letters += "covp-"[static_cast<size_t>(argument.kind)];
    }
    return letters;
  }

  std::vector<std::string> corrected(const std::vector<std::string>& arguments) {
    const auto result = correct_values(arguments, line_.root().app());
    return result.ok() ? *result : std::vector<std::string>{result.error().message};
  }

  CommandLine line_{"Test", "test"};
  Command serve_ = line_.root().add_subcommand("serve", "Serve");
  std::string model_, out_;
  std::vector<std::string> keys_, goals_;
  std::vector<int32_t> rows_;
  bool check_ = false;
};

TEST_F(ArgumentKinds, ValuesBelongToTheOptionBeforeThem) {
  EXPECT_EQ(kinds({"serve", "--model", "a", "serve"}), "covp");
  EXPECT_EQ(kinds({"serve", "-o", "a", "b", "-oa", "b"}), "covpop");
  EXPECT_EQ(kinds({"serve", "--model", "--check", "b"}), "covp");
  EXPECT_EQ(kinds({"serve", "--check", "a", "--unknown", "b"}), "copop");
  EXPECT_EQ(kinds({"serve", "--model=a", "b", "--", "--model", "-c"}), "cop-pp");
}

TEST_F(ArgumentKinds, ListsTakeAsManyValuesAsTheirOptionSays) {
  EXPECT_EQ(kinds({"serve", "--key", "a", "b", "--key=a", "b"}), "covpop");
  EXPECT_EQ(kinds({"serve", "--rows", "1", "2", "3", "--rows=1", "2"}), "covvvov");
  EXPECT_EQ(kinds({"serve", "--goal", "1", "2", "3", "4"}), "covvvp");
}

TEST_F(ArgumentKinds, AnEmptyValueIsAnArgumentOfItsOwn) {
  EXPECT_THAT(corrected({"serve", "--model=", "b"}), ElementsAre("serve", "--model", "", "b"));
  EXPECT_THAT(corrected({"serve", "--out", "--model=", "--", "--model="}),
              ElementsAre("serve", "--out", "--model=", "--", "--model="));
  EXPECT_THAT(corrected({"serve", "--unknown=", "--key=a=b"}),
              ElementsAre("serve", "--unknown=", "--key=a=b"));
}

TEST_F(ArgumentKinds, ASwitchTakesTrueOrFalse) {
  EXPECT_THAT(corrected({"serve", "--check=True", "--no-check=off"}),
              ElementsAre("serve", "--check=True", "--no-check=off"));
  for (const std::string value : {"maybe", "", "2", "99999999999999999999999"}) {
    for (const std::string flag : {"--check", "--no-check"}) {
      EXPECT_THAT(corrected({"serve", flag + "=" + value}),
                  ElementsAre(flag + ": '" + value + "' is not possible; choose true or false"));
    }
  }
}

}  // namespace
}  // namespace tandem::cli
