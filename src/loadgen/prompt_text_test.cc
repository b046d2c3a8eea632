#include "loadgen/prompt_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "workload/number.h"

namespace tandem::loadgen {
namespace {

// Tokenizers of three kinds, as a server counts with them.
int64_t count_words(const std::string& text, const std::set<std::string>& rare, int64_t overhead) {
  int64_t tokens = overhead;
  for (const std::string_view word : workload::split(text, ' ')) {
    tokens += rare.contains(std::string(word)) ? 2 : 1;
  }
  return tokens;
}
int64_t count_bytes(const std::string& text, int64_t overhead) {
  return overhead + static_cast<int64_t>(text.size());
}

int64_t words_of(const std::string& text) { return std::ranges::count(text, ' ') + 1; }

TEST(PromptText, WordsAreUnitsWhereTheVocabularyHoldsThem) {
  const PromptUnits units = *find_units(
      [](const std::string& text) -> Result<int64_t> { return count_words(text, {}, 21); });
  EXPECT_TRUE(units.exact);
  EXPECT_EQ(units.overhead_tokens, 21);
  EXPECT_GT(units.units.size(), 80);
}

TEST(PromptText, WordsOfTwoTokensAreLeftOut) {
  const std::set<std::string> rare = {"of", "their", "know"};
  const PromptUnits units = *find_units(
      [&](const std::string& text) -> Result<int64_t> { return count_words(text, rare, 1); });
  EXPECT_TRUE(units.exact);
  EXPECT_EQ(std::ranges::count(units.units, " their"), 0);
  EXPECT_EQ(std::ranges::count(units.units, " the"), 1);
}

TEST(PromptText, LettersAreUnitsWhereEveryByteIsAToken) {
  const PromptUnits units =
      *find_units([](const std::string& text) -> Result<int64_t> { return count_bytes(text, 3); });
  EXPECT_TRUE(units.exact);
  EXPECT_EQ(units.overhead_tokens, 3);
  EXPECT_EQ(units.units.front().size(), 1);
}

TEST(PromptText, LettersThatFormTokensTogetherAreLeftOut) {
  // Every byte is a token, but "e" joins any letter after it and "t" joins "h".
  const auto count = [](const std::string& text) -> Result<int64_t> {
    int64_t tokens = 0;
    for (size_t i = 0; i < text.size(); ++i, ++tokens) {
      const char next = i + 1 < text.size() ? text[i + 1] : ' ';
      i += (text[i] == 'e' && next != ' ') || (text[i] == 't' && next == 'h') ? 1 : 0;
    }
    return tokens;
  };
  const PromptUnits units = *find_units(count);
  EXPECT_TRUE(units.exact);
  EXPECT_EQ(std::ranges::count(units.units, "e"), 0);
  EXPECT_GT(units.units.size(), 15);
  EXPECT_EQ(*count(make_prompt({{3, 777}}, units)), 777);
}

TEST(PromptText, AnAlphabetWithMoreUnitsIsPreferred) {
  // Each capital letter is one token. A word in small letters is one token only if it is short.
  const auto count = [](const std::string& text) -> Result<int64_t> {
    int64_t tokens = 0;
    for (const std::string_view word : workload::split(text, ' ')) {
      const bool is_capitals = !word.empty() && word.front() <= 'Z';
      const auto length = static_cast<int64_t>(word.size());
      const bool is_short = word == "the" || (length == 2 && word.front() < 'j');
      tokens += !is_capitals && is_short ? 1 : length;
    }
    return tokens;
  };
  const PromptUnits units = *find_units(count);
  EXPECT_TRUE(units.exact);
  EXPECT_GE(units.units.size(), 16);
}

// The tokenizer cuts as Tandem-Tiny's: a word behind a space is one token, the first word of a text
// is cut into its letters.
TEST(PromptText, FirstWordsThatAreCutIntoLettersKeepLengthsExact) {
  const auto count = [](const std::string& text) -> Result<int64_t> {
    const auto first = static_cast<int64_t>(text.substr(0, text.find(' ')).size());
    return 4 + first + words_of(text) - 1;
  };
  const PromptUnits units = *find_units(count);
  EXPECT_TRUE(units.exact);
  EXPECT_GT(units.units.size(), 80);
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    EXPECT_EQ(*count(make_prompt({{seed, 128}}, units)), 128);
    EXPECT_EQ(*count(make_prompt({{seed % 3, 64}, {seed, 36}}, units)), 100) << "a shared prefix";
  }
  EXPECT_NE(make_prompt({{1, 128}}, units), make_prompt({{2, 128}}, units));
  EXPECT_EQ(*count(make_prompt({{1, units.least_tokens()}}, units)), units.least_tokens());
}

TEST(PromptText, TheOverheadIsOfTheUnitThatBeginsPrompts) {
  // Every byte is a token, but "e" joins "a", "n" and "r", and another first letter than "e" takes
  // a token more.
  const auto count = [](const std::string& text) -> Result<int64_t> {
    int64_t tokens = text.starts_with('e') ? 0 : 1;
    for (size_t i = 0; i < text.size(); ++i, ++tokens) {
      const std::string pair = text.substr(i, 2);
      i += pair == "ea" || pair == "en" || pair == "er" ? 1 : 0;
    }
    return tokens;
  };
  const PromptUnits units = *find_units(count);
  EXPECT_TRUE(units.exact);
  EXPECT_EQ(std::ranges::count(units.units, "e"), 0);
  EXPECT_EQ(units.overhead_tokens, 1);
  EXPECT_EQ(*count(make_prompt({{3, 777}}, units)), 777);
}

TEST(PromptText, OddTokenizersGiveApproximateLengths) {
  const PromptUnits units = *find_units([](const std::string& text) -> Result<int64_t> {
    return 5 + static_cast<int64_t>(text.size()) * 2 / 7;
  });
  EXPECT_FALSE(units.exact);
  const std::string prompt = make_prompt({{1, 500}}, units);
  EXPECT_NEAR(5 + static_cast<double>(prompt.size()) / 3.5, 500, 50);
}

TEST(PromptText, ServersThatDoNotCountAreRefused) {
  EXPECT_FALSE(find_units([](const std::string&) -> Result<int64_t> { return 0; }).ok());
  EXPECT_FALSE(find_units([](const std::string&) -> Result<int64_t> {
                 return invalid_argument("no");
               }).ok());
}

TEST(PromptText, PromptsHaveExactlyThePlannedLength) {
  const PromptUnits units = *find_units(
      [](const std::string& text) -> Result<int64_t> { return count_words(text, {}, 21); });
  for (const int32_t tokens : {22, 23, 100, 4096}) {
    EXPECT_EQ(21 + words_of(make_prompt({{7, tokens}}, units)), tokens);
  }
  EXPECT_EQ(words_of(make_prompt({{7, 5}}, units)), 1) << "never empty";
  EXPECT_EQ(21 + words_of(make_prompt({{1, 512}, {2, 512}, {3, 76}}, units)), 1100);
}

TEST(PromptText, EqualPartsAreEqualTextAndOthersAreNot) {
  const PromptUnits units = *find_units(
      [](const std::string& text) -> Result<int64_t> { return count_words(text, {}, 1); });
  const std::string one = make_prompt({{1, 512}, {2, 100}}, units);
  const std::string two = make_prompt({{1, 512}, {3, 100}}, units);
  const std::string shared = make_prompt({{1, 512}}, units);
  EXPECT_TRUE(one.starts_with(shared));
  EXPECT_TRUE(two.starts_with(shared));
  EXPECT_NE(one, two);
  EXPECT_EQ(one, make_prompt({{1, 512}, {2, 100}}, units));
}

}  // namespace
}  // namespace tandem::loadgen
