#include "options/option_descriptor.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "options/option_values.h"

namespace tandem {
namespace {

struct Limits {
  int32_t sequences = 256;
  int64_t body = int64_t{32} << 20;
  std::string host = "localhost";
  bool check = false;
  std::vector<std::string> methods = {"GET", "PUT"};
};

OptionTable limits_table(Limits& limits) {
  return {{.name = "max-num-seqs",
           .unit = "sequences",
           .group = "Scheduling",
           .value = values::whole(limits.sequences, values::WholeRange{1, 1024})},
          {.name = "max-body-size",
           .group = "HTTP",
           .value = values::bytes(limits.body),
           .key = "body_bytes"},
          {.name = "host", .group = "HTTP", .value = values::text(limits.host)},
          {.name = "check", .group = "HTTP", .value = values::switch_on(limits.check)},
          {.name = "methods", .group = "HTTP", .value = values::texts(limits.methods)}};
}

TEST(OptionDescriptor, KeysAreNamesWithUnderscoresUnlessGiven) {
  Limits limits;
  const OptionTable table = limits_table(limits);
  EXPECT_EQ(config_key(table[0]), "max_num_seqs");
  EXPECT_EQ(config_key(table[1]), "body_bytes");
}

TEST(OptionDescriptor, ErrorsNameFlagValueRangeAndUnit) {
  Limits limits;
  const OptionTable table = limits_table(limits);
  const Status wrong = set_option(table[0], "0");
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().message,
            "--max-num-seqs: '0' is not a whole number of 1 to 1024 sequences");
  EXPECT_EQ(wrong.error().param, "max-num-seqs");
  EXPECT_TRUE(set_option(table[0], "12").ok());
  EXPECT_EQ(limits.sequences, 12);
}

TEST(OptionDescriptor, TextsAreThoseOfFlags) {
  Limits limits;
  const OptionTable table = limits_table(limits);
  std::vector<std::string> shown;
  for (const OptionDescriptor& option : table) {
    shown.push_back(option_text(option));
  }
  EXPECT_EQ(shown, (std::vector<std::string>{"256", "32MiB", "localhost", "false", "GET, PUT"}));
  limits.host.clear();
  EXPECT_EQ(option_text(table[2]), "") << "not given";
}

TEST(OptionDescriptor, TheRangeIsAFieldThatIsShownAndChecked) {
  Limits limits;
  std::optional<double> share;
  OptionTable table = limits_table(limits);
  const auto shown = [](std::string unit, OptionVariable value) {
    return range_text({.name = "x", .unit = std::move(unit), .value = std::move(value)});
  };
  EXPECT_EQ(range_text(table[0]), "1 to 1024 sequences");
  EXPECT_EQ(range_text(table[1]), "at most 1024TiB");
  EXPECT_EQ(range_text(table[2]), "");
  EXPECT_EQ(shown("", values::whole(limits.sequences)), "") << "whatever the variable holds";
  EXPECT_EQ(shown("steps", values::whole(limits.sequences, values::WholeRange{1, INT32_MAX})),
            "1 or more steps");
  EXPECT_EQ(shown("", values::whole(limits.sequences, values::WholeRange{0, 1})), "0 or 1");
  EXPECT_EQ(shown("", values::tokens(limits.sequences, 1 << 30)), "1 to 2^30");
  EXPECT_EQ(shown("", values::real_if_given(share, 0.01, 1)), "0.01 to 1");
  EXPECT_EQ(shown("", values::one_of(limits.host, {"a", "b"})), "") << "names are shown as value";

  table[0].value.range.max = int64_t{8};
  EXPECT_TRUE(set_option(table[0], "8").ok());
  const Status wrong = set_option(table[0], "9");
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().message, "--max-num-seqs: '9' is not a whole number of 1 to 8 sequences");
}

TEST(OptionDescriptor, GroupsKeepTheOrderOfTheTable) {
  Limits limits;
  const OptionTable http = options_of_group(limits_table(limits), "HTTP");
  ASSERT_EQ(http.size(), 4U);
  EXPECT_EQ(http.front().name, "max-body-size");
  EXPECT_TRUE(options_of_group(http, "Scheduling").empty());
}

}  // namespace
}  // namespace tandem
