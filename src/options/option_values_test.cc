#include "options/option_values.h"

#include <gtest/gtest.h>

#include <limits>

namespace tandem::values {
namespace {

using namespace std::chrono_literals;

enum class Colour : uint8_t { kRed, kGreen };

// What an option says of a value that it does not take; empty: it takes it.
std::string refusal(const OptionVariable& variable, const OptionValue& value) {
  const Status set = variable.set(value);
  return set.ok() ? "" : set.error().message;
}

TEST(OptionValues, WholeNumbersKeepToTheirRange) {
  int32_t count = 5;
  const OptionVariable variable = whole(count, WholeRange{1, 9});
  EXPECT_EQ(refusal(variable, "7"), "");
  EXPECT_EQ(count, 7);
  EXPECT_EQ(refusal(variable, int64_t{9}), "");
  EXPECT_EQ(count, 9);
  for (const char* wrong : {"0", "10", "", "x", "1.5", "1 ", " 1", "1e3", "99999999999999999999"}) {
    EXPECT_EQ(refusal(variable, wrong),
              "'" + std::string(wrong) + "' is not a whole number of 1 to 9");
  }
  EXPECT_EQ(refusal(variable, int64_t{10}), "10 is not a whole number of 1 to 9");
  EXPECT_NE(refusal(variable, true), "");
  EXPECT_NE(refusal(variable, 2.0), "");
  EXPECT_EQ(count, 9) << "a refused value changes nothing";
  EXPECT_EQ(variable.get(), OptionValue(int64_t{9}));
}

TEST(OptionValues, WholeNumbersHoldAllOfTheirType) {
  uint16_t port = 1;
  EXPECT_EQ(refusal(whole(port), "65535"), "");
  EXPECT_EQ(refusal(whole(port), "65536"), "'65536' is not a whole number of 0 to 65535");
  EXPECT_NE(refusal(whole(port), "-1"), "");
  uint64_t seed = 0;
  EXPECT_EQ(refusal(whole(seed), "18446744073709551615"), "");
  EXPECT_EQ(seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(whole(seed).get(), OptionValue(seed));
  EXPECT_EQ(refusal(whole(seed), int64_t{3}), "");
  EXPECT_NE(refusal(whole(seed), int64_t{-3}), "");
  int32_t level = 0;
  EXPECT_EQ(refusal(whole(level), "-7"), "");
  EXPECT_EQ(level, -7);
}

TEST(OptionValues, EveryKindIsCheckedByItsRange) {
  int32_t count = 5;
  std::optional<double> share;
  std::string colour = "red";
  int64_t size = 7;
  int64_t number = 1;
  struct Narrowed {
    OptionVariable variable;
    OptionRange range;
    OptionValue good;
    OptionValue bad;
  };
  const auto set_number = [&number](int64_t to) { number = to; };
  const auto get_number = [&number] { return number; };
  const OptionRange to_three{.min = int64_t{2}, .max = int64_t{3}};
  const std::vector<Narrowed> all = {
      {whole(count), to_three, "3", "4"},
      {tokens(count, 100), to_three, "2", "1"},
      {whole_by({0, 9}, set_number, get_number), to_three, int64_t{2}, int64_t{9}},
      {bytes(size), {.min = int64_t{0}, .max = int64_t{1024}}, "1KiB", "2KiB"},
      {real_if_given(share, 0, 1), {.min = 0.5, .max = 0.75}, "0.6", "0.9"},
      {one_of(colour, {"red", "green"}), {.names = {"red"}}, "red", "green"}};
  for (const Narrowed& narrowed : all) {
    OptionVariable variable = narrowed.variable;
    EXPECT_EQ(refusal(variable, narrowed.bad), "") << "in its own range";
    variable.range = narrowed.range;
    EXPECT_EQ(refusal(variable, narrowed.good), "");
    EXPECT_NE(refusal(variable, narrowed.bad), "");
  }
  EXPECT_EQ(refusal(bytes(size), "1025TiB"), "'1025TiB' is more than 1024TiB");
}

TEST(OptionValues, ZeroIsNotShownWhereItMeansNotGiven) {
  int64_t blocks = 0;
  const OptionVariable variable = whole_if_given(blocks, WholeRange{1, 100});
  EXPECT_EQ(variable.get(), OptionValue());
  EXPECT_NE(refusal(variable, "0"), "");
  EXPECT_EQ(refusal(variable, "+4"), "");
  EXPECT_EQ(variable.get(), OptionValue(int64_t{4}));
  std::optional<double> share;
  EXPECT_EQ(real_if_given(share, 0.01, 1).get(), OptionValue());
  EXPECT_EQ(refusal(real_if_given(share, 0.01, 1), "0.5"), "");
  EXPECT_EQ(share, 0.5);
  for (const char* wrong : {"0", "1.1", "nan", "half", "50%"}) {
    EXPECT_EQ(refusal(real_if_given(share, 0.01, 1), wrong),
              "'" + std::string(wrong) + "' is not a number of 0.01 to 1");
  }
}

TEST(OptionValues, TokensMayBeThousands) {
  int32_t count = 0;
  for (const auto& [text, expected] : {std::pair("4096", 4096), std::pair("2k", 2000),
                                       std::pair("2K", 2048), std::pair("1M", 1 << 20)}) {
    EXPECT_EQ(refusal(tokens(count, 1 << 20), text), "") << text;
    EXPECT_EQ(count, expected);
  }
  EXPECT_NE(refusal(tokens(count, 1 << 20), "4Q").find("use for example 4096 or 4K"),
            std::string::npos);
  for (const char* wrong : {"0", "-1", "1.5", "auto", "", "2M", "nan"}) {
    EXPECT_NE(refusal(tokens(count, 1 << 20), wrong), "") << wrong;
  }
  EXPECT_EQ(refusal(tokens_if_given(count, 1 << 30), "auto"), "");
  EXPECT_EQ(tokens_if_given(count, 1 << 30).get(), OptionValue());
  EXPECT_EQ(refusal(tokens_if_given(count, 1 << 30), int64_t{512}), "") << "of a record";
  EXPECT_EQ(count, 512);
}

TEST(OptionValues, SizesAndTimesHaveUnits) {
  int64_t size = 0;
  EXPECT_EQ(refusal(bytes(size), "1.5GiB"), "");
  EXPECT_EQ(size, int64_t{3} << 29);
  EXPECT_EQ(refusal(bytes(size), int64_t{7}), "");
  EXPECT_EQ(size, 7);
  for (const OptionValue& wrong : {OptionValue("-1"), OptionValue("8 apples"), OptionValue(""),
                                   OptionValue(int64_t{-1}), OptionValue(INT64_MAX)}) {
    EXPECT_NE(refusal(bytes(size), wrong), "");
  }
  uint64_t body = 0;
  EXPECT_EQ(refusal(bytes(body), "32MiB"), "");
  EXPECT_EQ(bytes(body).get(), OptionValue(int64_t{32} << 20));
  Nanos time{0};
  EXPECT_EQ(refusal(duration(time), "1.5s"), "");
  EXPECT_EQ(time, 1500ms);
  EXPECT_EQ(duration(time).get(), OptionValue("1500ms"));
  for (const char* wrong : {"", "5", "-1s", "1w", "s"}) {
    EXPECT_NE(refusal(duration(time), wrong), "") << wrong;
  }
}

TEST(OptionValues, ChoicesNameWhatIsPossible) {
  Colour colour = Colour::kGreen;
  const OptionVariable variable = named(colour, {{"red", Colour::kRed}, {"green", Colour::kGreen}});
  EXPECT_EQ(variable.get(), OptionValue("green"));
  EXPECT_EQ(refusal(variable, "red"), "");
  EXPECT_EQ(colour, Colour::kRed);
  EXPECT_EQ(refusal(variable, "blue"), "'blue' is not possible; choose red or green");
  EXPECT_NE(refusal(variable, int64_t{1}), "");
  EXPECT_EQ(refusal(numbered(colour, Colour::kGreen), "1"), "");
  EXPECT_EQ(colour, Colour::kGreen);
  EXPECT_NE(refusal(numbered(colour, Colour::kGreen), "2"), "");
  std::string format = "text";
  EXPECT_EQ(refusal(one_of(format, {"text", "json"}), "json"), "");
  EXPECT_EQ(one_of(format, {"text", "json"}).get(), OptionValue("json"));
  int64_t status = 429;
  const OptionVariable statuses = one_of(
      {429, 503}, [&status](int64_t chosen) { status = chosen; }, [&status] { return status; });
  EXPECT_EQ(refusal(statuses, "503"), "");
  EXPECT_EQ(statuses.get(), OptionValue(int64_t{503}));
  EXPECT_EQ(refusal(statuses, "200"), "'200' is not possible; choose 429 or 503");
}

TEST(OptionValues, OfAFileTheLastNameIsShown) {
  std::string file;
  EXPECT_EQ(path(file).get(), OptionValue());
  EXPECT_EQ(refusal(path(file), "/etc/tandem/keys"), "");
  EXPECT_EQ(file, "/etc/tandem/keys");
  EXPECT_EQ(path(file).get(), OptionValue("keys"));
  std::filesystem::path folder = "models/llama/";
  EXPECT_EQ(path(folder).get(), OptionValue("llama"));
}

TEST(OptionValues, SwitchesAndLists) {
  bool shown = true;
  EXPECT_EQ(switch_off(shown).get(), OptionValue(false));
  EXPECT_EQ(refusal(switch_off(shown), true), "");
  EXPECT_FALSE(shown);
  EXPECT_EQ(refusal(switch_on(shown), true), "");
  EXPECT_TRUE(shown);
  EXPECT_NE(refusal(switch_on(shown), "yes"), "");
  std::vector<std::string> names;
  EXPECT_EQ(refusal(texts(names), std::vector<std::string>{"a", "b"}), "");
  EXPECT_EQ(names.size(), 2U);
  EXPECT_NE(refusal(texts(names), "a"), "");
}

}  // namespace
}  // namespace tandem::values
