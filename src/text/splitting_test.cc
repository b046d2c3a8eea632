// Regular expressions, normalizers, pre-tokenizers and added tokens: what happens to a text before
// merging.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "text/added_tokens.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"

namespace tandem::text {
namespace {

using nlohmann::json;
using Strings = std::vector<std::string>;

Strings split(const json& pre_tokenizer, const std::string& text,
              TextPlace place = TextPlace::kBeginning) {
  const auto parsed = PreTokenizer::parse(pre_tokenizer, "test");
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  const auto pieces = parsed->apply(text, place);
  EXPECT_TRUE(pieces.ok()) << pieces.error().message;
  Strings strings;
  for (size_t i = 0; i < pieces->ranges.size(); ++i) {
    strings.emplace_back((*pieces)[i]);
  }
  return strings;
}

std::string normalize(const json& normalizer, const std::string& text) {
  const auto parsed = Normalizer::parse(normalizer, "test");
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  const auto result = parsed->apply(text);
  EXPECT_TRUE(result.ok());
  return *result;
}

json split_on(const json& pattern, const char* behavior, bool invert = false) {
  return {{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", invert}};
}

TEST(PreTokenizer, SplitHasFiveBehaviors) {
  const json dash = {{"String", "-"}};
  const std::string text = "the-final--countdown";
  EXPECT_EQ(split(split_on(dash, "Removed"), text), (Strings{"the", "final", "countdown"}));
  EXPECT_EQ(split(split_on(dash, "Isolated"), text),
            (Strings{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(split(split_on(dash, "MergedWithPrevious"), text),
            (Strings{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(split(split_on(dash, "MergedWithNext"), text),
            (Strings{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(split(split_on(dash, "Contiguous"), text),
            (Strings{"the", "-", "final", "--", "countdown"}));
}

TEST(PreTokenizer, WhiteSpaceIsUnicodesAndNotTheVowelSeparator) {
  const std::string separator = "\u180E";
  for (const char* space : {" ", "\t", "\u0085", "\u00A0", "\u1680", "\u2000", "\u200A", "\u2028",
                            "\u202F", "\u205F", "\u3000"}) {
    const std::string text = "a" + std::string(space) + "b" + separator + "c";
    for (const char* pattern : {"\\s", "[\\s]", "[^\\S]", "[[:space:]]", "[[:digit:]\\s]", "[-\\s]",
                                "[\\s-]", "[!-\\s]", "[\\s-!]", "(?i:[\\s!])"}) {
      EXPECT_EQ(split(split_on({{"Regex", pattern}}, "Removed"), text),
                (Strings{"a", "b" + separator + "c"}))
          << pattern;
    }
    for (const char* pattern : {"\\S", "[\\S]", "[^\\s]", "[^[:space:]]"}) {
      EXPECT_EQ(split(split_on({{"Regex", pattern}}, "Contiguous"), text),
                (Strings{"a", space, "b" + separator + "c"}))
          << pattern;
    }
  }
  EXPECT_EQ(split(split_on({{"Regex", "[a\\-\\s]"}}, "Removed"), "xa-b c"),
            (Strings{"x", "b", "c"}));
  EXPECT_EQ(split(split_on({{"Regex", "\\\\s"}}, "Removed"), "x\\s y"), (Strings{"x", " y"}));
}

TEST(PreTokenizer, InvertTurnsMatchesAndGapsAround) {
  EXPECT_EQ(split(split_on({{"Regex", "[a-z]+"}}, "Removed", true), "ab1cd"),
            (Strings{"ab", "cd"}));
}

TEST(PreTokenizer, AnEmptyMatchCutsWithoutTaking) {
  EXPECT_EQ(split(split_on({{"Regex", "(?=[A-Z])"}}, "Isolated"), "oneTwoÖThree"),
            (Strings{"one", "TwoÖ", "Three"}));
}

TEST(PreTokenizer, ByteLevelAddsItsSpaceOnceAndCutsAsGpt2) {
  const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", true}};
  EXPECT_EQ(split(byte_level, "it's  2 o'clock"),
            (Strings{" it", "'s", " ", " 2", " o", "'", "clock"}));
  EXPECT_EQ(split(byte_level, " it"), (Strings{" it"}));
  EXPECT_EQ(split(byte_level, ""), Strings{});
}

TEST(PreTokenizer, DigitsAndPunctuation) {
  EXPECT_EQ(split({{"type", "Digits"}, {"individual_digits", true}}, "a12b"),
            (Strings{"a", "1", "2", "b"}));
  EXPECT_EQ(split({{"type", "Digits"}, {"individual_digits", false}}, "a12b"),
            (Strings{"a", "12", "b"}));
  EXPECT_EQ(split({{"type", "Punctuation"}}, "a.b!?"), (Strings{"a", ".", "b", "!", "?"}));
  EXPECT_EQ(split({{"type", "Whitespace"}}, "hi there!"), (Strings{"hi", "there", "!"}));
}

TEST(PreTokenizer, MetaspacePutsItsMarkBeforeTheTextAsTheSchemeSays) {
  const auto metaspace = [](const char* scheme) {
    return json{{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}};
  };
  EXPECT_EQ(split(metaspace("always"), "a b"), (Strings{"▁a", "▁b"}));
  EXPECT_EQ(split(metaspace("first"), "a b"), (Strings{"▁a", "▁b"}));
  EXPECT_EQ(split(metaspace("first"), "a b", TextPlace::kLater), (Strings{"a", "▁b"}));
  EXPECT_EQ(split(metaspace("never"), "a b"), (Strings{"a", "▁b"}));
  EXPECT_EQ(split(metaspace("always"), " a"), (Strings{"▁a"}));
}

TEST(PreTokenizer, WhatIsNotBuiltIsNamed) {
  const auto unknown = PreTokenizer::parse({{"type", "UnicodeScripts"}}, "file: pre_tokenizer");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(unknown.error().message.find("\"UnicodeScripts\""), std::string::npos);
  for (const json& bad :
       {json(3), json({{"type", 3}}), json({{"type", "Sequence"}}), json({{"type", "Split"}}),
        split_on({{"Regex", "("}}, "Isolated"), split_on({{"String", ""}}, "Isolated"),
        split_on({{"Regex", "[a&&b]"}}, "Isolated"), split_on({{"Regex", "[a[b]]"}}, "Isolated"),
        split_on({{"String", "a"}}, "Sideways"),
        json({{"type", "Metaspace"}, {"replacement", "ab"}})}) {
    const auto parsed = PreTokenizer::parse(bad, "file: pre_tokenizer");
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_NE(parsed.error().message.find("file: pre_tokenizer"), std::string::npos) << bad;
  }
}

TEST(Regex, AHostilePatternEndsInAnError) {
  const auto regex = Regex::compile("(?:a|a)*$", "test");
  ASSERT_TRUE(regex.ok());
  Regex::Matcher matcher(*regex);
  const std::string text = std::string(60, 'a') + "!";
  matcher.start(text);
  EXPECT_FALSE(matcher.next().ok());
}

TEST(Regex, LongRunsOfSpacesTakeLinearTime) {
  const std::string text = std::string(1 << 20, ' ') + "x";
  EXPECT_EQ(split(split_on({{"Regex", "\\s+$"}}, "Isolated"), text), (Strings{text}));
  EXPECT_EQ(split(split_on({{"Regex", "\\s+$"}}, "Isolated"), "a  \n \n  b  "),
            (Strings{"a", "  \n ", "\n  b", "  "}));
}

TEST(Normalizer, ComponentsDoWhatTheirNamesSay) {
  EXPECT_EQ(normalize({{"type", "Prepend"}, {"prepend", "▁"}}, "a"), "▁a");
  EXPECT_EQ(normalize({{"type", "Prepend"}, {"prepend", "▁"}}, ""), "");
  EXPECT_EQ(
      normalize({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}, " a "),
      "▁a▁");
  EXPECT_EQ(
      normalize({{"type", "Replace"}, {"pattern", {{"Regex", " +"}}}, {"content", "_"}}, "a   b"),
      "a_b");
  EXPECT_EQ(
      normalize({{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}}, " \u3000a \n"),
      "a");
  EXPECT_EQ(normalize({{"type", "Strip"}, {"strip_left", false}}, " a "), " a");
  EXPECT_EQ(normalize({{"type", "Lowercase"}}, "ÀB\u0130"), "àbi\u0307");
  EXPECT_EQ(normalize(nullptr, "a"), "a");
}

TEST(Normalizer, UnicodeFormsComposeAndDecompose) {
  EXPECT_EQ(normalize({{"type", "NFC"}}, "e\u0301 \u1100\u1161\u11A8"), "\u00E9 \uAC01");
  EXPECT_EQ(normalize({{"type", "NFD"}}, "\u00E9\uAC01"), "e\u0301\u1100\u1161\u11A8");
  EXPECT_EQ(normalize({{"type", "NFC"}}, "a\u0301\u0323"), "\u1EA1\u0301");
  EXPECT_EQ(normalize({{"type", "NFKC"}}, "\uFB01 \u2460 \uFF21"), "fi 1 A");
  EXPECT_EQ(normalize({{"type", "NFKD"}}, "\uFB01\u00E9"), "fie\u0301");
  EXPECT_EQ(normalize({{"type", "NFC"}}, "\u212B"), "\u00C5");
}

TEST(Normalizer, ManyMarksOnOneLetterTakeLittleTime) {
  std::string text = "a";
  std::string ordered = "\u1EA1";
  for (int i = 0; i < 100'000; ++i) {
    text += "\u0301\u0323";
  }
  const std::string result = normalize({{"type", "NFC"}}, text);
  EXPECT_EQ(result.size(), text.size() + ordered.size() - 1 - 2);
  EXPECT_TRUE(result.starts_with(ordered + "\u0323"));
}

TEST(Normalizer, RefusesWhatWouldGrowBeyondReason) {
  const auto parsed = Normalizer::parse(
      {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1000, 'b')}},
      "test");
  ASSERT_TRUE(parsed.ok());
  EXPECT_FALSE(parsed->apply(std::string(1 << 20, 'a')).ok());
  EXPECT_FALSE(Normalizer::parse({{"type", "Nmt"}}, "test").ok());
  EXPECT_FALSE(Normalizer::parse({{"type", "Prepend"}}, "test").ok());
}

Strings cut(const std::vector<AddedToken>& tokens, const std::string& text,
            SpecialTokens special = SpecialTokens::kParse) {
  AddedTokenMatcher matcher;
  for (const AddedToken& token : tokens) {
    matcher.add(token, token.content);
  }
  Strings parts;
  for (const auto& part : matcher.cut(text, special)) {
    const std::string piece = text.substr(part.range.begin, part.range.end - part.range.begin);
    parts.push_back(part.token ? "<" + std::to_string(*part.token) + ":" + piece + ">" : piece);
  }
  return parts;
}

TEST(AddedTokens, TheLongestOfThoseThatBeginTogetherIsCut) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "  "}, {.id = 2, .content = "    "}};
  EXPECT_EQ(cut(tokens, "a       b"), (Strings{"a", "<2:    >", "<1:  >", " b"}));
  EXPECT_EQ(cut(tokens, ""), Strings{});
  EXPECT_EQ(cut({}, "ab"), (Strings{"ab"}));
}

TEST(AddedTokens, SpecialOnesStayTextUnlessParsed) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "<s>", .special = true},
                                          {.id = 2, .content = "<s"}};
  EXPECT_EQ(cut(tokens, "a<s>"), (Strings{"a", "<1:<s>>"}));
  EXPECT_EQ(cut(tokens, "a<s>", SpecialTokens::kLeaveAsText), (Strings{"a", "<2:<s>", ">"}));
}

TEST(AddedTokens, StripTakesSpacesAndSingleWordWantsEdges) {
  EXPECT_EQ(cut({{.id = 1, .content = "X", .lstrip = true, .rstrip = true}}, "a \u3000X\n b"),
            (Strings{"a", "<1: \u3000X\n >", "b"}));
  EXPECT_EQ(cut({{.id = 1, .content = "of", .single_word = true}}, "of soft of"),
            (Strings{"<1:of>", " soft ", "<1:of>"}));
}

}  // namespace
}  // namespace tandem::text
