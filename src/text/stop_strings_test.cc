#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/thread_time.h"

namespace tandem::text {
namespace {

struct Outcome {
  std::string text;
  std::optional<size_t> stop;
  bool operator==(const Outcome&) const = default;
};

std::shared_ptr<const StopStrings> compile(std::vector<std::string> strings) {
  auto compiled = StopStrings::compile(std::move(strings));
  EXPECT_TRUE(compiled.ok());
  return *compiled;
}

// Pushes `text` in pieces of `piece_bytes`.
Outcome run(const std::shared_ptr<const StopStrings>& strings, StopOptions options,
            std::string_view text, size_t piece_bytes) {
  StopStringCutter cutter(strings, options);
  Outcome outcome;
  for (size_t i = 0; i < text.size(); i += piece_bytes) {
    const StopCut cut = cutter.push(text.substr(i, piece_bytes));
    outcome.text += cut.text;
    if (cut.stop) {
      outcome.stop = cut.stop;
      return outcome;
    }
  }
  outcome.text += cutter.flush();
  return outcome;
}

// The rule of the header, by trying everything.
Outcome expected(const std::vector<std::string>& strings, StopOptions options,
                 std::string_view text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> longest;
    for (size_t i = 0; i < strings.size(); ++i) {
      if (text.substr(0, end).ends_with(strings[i]) &&
          (!longest || strings[i].size() > strings[*longest].size())) {
        longest = i;
      }
    }
    if (longest) {
      const size_t length = options.include_stop_string_in_output ? 0 : strings[*longest].size();
      return {std::string(text.substr(0, end - length)), longest};
    }
  }
  return {std::string(text), std::nullopt};
}

TEST(StopStringCutter, CutsTheTextBeforeAStopString) {
  const auto strings = compile({"\n\n", "END"});
  EXPECT_EQ(run(strings, {}, "a b END c", 100), (Outcome{"a b ", 1}));
  EXPECT_EQ(run(strings, {}, "a\nb\n\nc", 1), (Outcome{"a\nb", 0}));
}

TEST(StopStringCutter, KeepsTheStopStringWhereAskedTo) {
  EXPECT_EQ(run(compile({"END"}), {.include_stop_string_in_output = true}, "a END b", 2),
            (Outcome{"a END", 0}));
}

TEST(StopStringCutter, HoldsBackNoMoreThanMayBecomeAStopString) {
  StopStringCutter cutter(compile({"stop", "top-hat"}), {});
  EXPECT_EQ(cutter.push("a s").text, "a ");
  EXPECT_EQ(cutter.push("to").text, "");
  EXPECT_EQ(cutter.push("o").text, "stoo");
  EXPECT_EQ(cutter.push("st").text, "");
  EXPECT_EQ(cutter.flush(), "st");
  EXPECT_EQ(cutter.flush(), "");
}

TEST(StopStringCutter, PassedTextDoesNotStopButMayBegin) {
  StopStringCutter cutter(compile({"END", "NDX"}), {});
  EXPECT_EQ(cutter.pass("a END b EN"), "a END b ");
  const StopCut cut = cutter.push("DX");
  EXPECT_EQ(cut.text, "");
  EXPECT_EQ(cut.stop, 0U);
  StopStringCutter other(compile({"END", "NDX"}), {});
  EXPECT_EQ(other.pass("END"), "");  // ND may become NDX; the E before it is held with it
  EXPECT_EQ(other.push("X").stop, 1U);
  StopStringCutter none(nullptr, {});
  EXPECT_EQ(none.pass("abc"), "abc");
}

TEST(StopStringCutter, PassesEverythingWhenThereAreNoStopStrings) {
  StopStringCutter none(nullptr, {});
  EXPECT_EQ(none.push("abc").text, "abc");
  StopStringCutter empty(compile({}), {});
  EXPECT_EQ(empty.push("abc").text, "abc");
  EXPECT_EQ(empty.flush(), "");
}

TEST(StopStringCutter, NeverSplitsACharacter) {
  StopStringCutter cutter(compile({"\u4e2d\u6587"}), {});
  EXPECT_EQ(cutter.push("\u4e2d").text, "");
  EXPECT_EQ(cutter.push("\u4e2e").text, "\u4e2d\u4e2e");  // shares its first two bytes with U+4E2D
}

TEST(StopStringCutter, AgreesWithTryingEverythingHoweverTheTextIsCut) {
  std::mt19937 random(3);
  const auto word = [&](uint32_t longest) {
    std::string text;
    for (uint32_t i = 1 + random() % longest; i > 0; --i) {
      text.push_back(static_cast<char>('a' + random() % 2));
    }
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> strings;
    for (uint32_t i = 1 + random() % 4; i > 0; --i) {
      strings.push_back(word(7));
    }
    const StopOptions options{.include_stop_string_in_output = random() % 2 == 0};
    const std::string text = word(30);
    const auto compiled = compile(strings);
    const Outcome want = expected(strings, options, text);
    ASSERT_EQ(run(compiled, options, text, 1 + random() % 5), want) << text;
    ASSERT_EQ(run(compiled, options, text, 1), want) << text;
  }
}

TEST(StopStrings, RefusesEmptyAndBrokenOnes) {
  const auto empty = StopStrings::compile({"a", ""});
  ASSERT_FALSE(empty.ok());
  EXPECT_EQ(empty.error().param, "stop");
  EXPECT_FALSE(StopStrings::compile({"\xFF"}).ok());
}

TEST(StopStrings, ManyLongOnesCostNoMorePerByte) {
  std::vector<std::string> strings;
  for (int i = 0; i < 1000; ++i) {
    strings.push_back(std::string(200, 'a') + std::to_string(i));
  }
  const std::string text(1 << 20, 'a');
  EXPECT_EQ(run(compile(strings), {}, text, 4096), (Outcome{text, std::nullopt}));
}

// Eight times the bytes take 8 times the work, not 64 times; in time of this thread alone, so that
// a busy machine does not matter.
TEST(StopStrings, CompilingTakesWorkInProportionToTheirBytes) {
  const auto work_of = [&](int bytes) {
    std::mt19937 random(1);
    std::vector<std::string> strings(16);
    for (std::string& string : strings) {
      for (int i = 0; i < bytes; ++i) {
        string += static_cast<char>('a' + random() % 26);
      }
    }
    Nanos best = Nanos::max();
    for (int i = 0; i < 5; ++i) {
      const Nanos begin = thread_time();
      const auto compiled = compile(strings);
      best = std::min(best, thread_time() - begin);
      EXPECT_FALSE(run(compiled, {}, "A", 1).stop);
    }
    return best;
  };
  EXPECT_LT(work_of(4096), 32 * work_of(512));
}

}  // namespace
}  // namespace tandem::text
