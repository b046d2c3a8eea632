#include "base/utf8.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

std::string repaired(std::string_view bytes, InvalidBytes invalid) {
  std::string out;
  EXPECT_EQ(append_repaired_utf8(bytes, Utf8Tail::kIsFinal, invalid, out), bytes.size());
  return out;
}

TEST(Utf8, EveryCodePointComesBack) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) {
      continue;
    }
    std::string text;
    append_utf8(c, text);
    ASSERT_FALSE(find_invalid_utf8(text)) << uint32_t{c};
    ASSERT_EQ(front_char(text).code_point, c);
    ASSERT_EQ(static_cast<size_t>(front_char(text).bytes), text.size());
    ASSERT_EQ(last_char_begin("x" + text), 1U);
  }
}

TEST(Utf8, WhatIsNotWellFormedIsFound) {
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xE4\xBD", "\xE4\xBDz"}) {
    EXPECT_EQ(find_invalid_utf8(std::string("good text ") + bad), 10U);
    EXPECT_FALSE(check_utf8(bad).ok());
  }
}

TEST(Utf8, OneReplacementPerSequenceOrPerByte) {
  EXPECT_EQ(repaired("a\xE4\xBDz\xFF", InvalidBytes::kOnePerSequence), "a\uFFFDz\uFFFD");
  EXPECT_EQ(repaired("a\xE4\xBDz\xFF", InvalidBytes::kOnePerByte), "a\uFFFD\uFFFDz\uFFFD");
  EXPECT_EQ(repaired("\xED\xA0\x80", InvalidBytes::kOnePerSequence), "\uFFFD\uFFFD\uFFFD");
}

TEST(Utf8, AnUnfinishedCharacterWaitsButAHopelessOneDoesNot) {
  std::string out;
  EXPECT_EQ(append_repaired_utf8("ab\xF0\x9F\x98", Utf8Tail::kMayGrow,
                                 InvalidBytes::kOnePerSequence, out),
            2U);
  EXPECT_EQ(out, "ab");
  EXPECT_EQ(
      append_repaired_utf8("\xE0\x80", Utf8Tail::kMayGrow, InvalidBytes::kOnePerSequence, out), 2U);
  EXPECT_EQ(out, "ab\uFFFD\uFFFD");
}

}  // namespace
}  // namespace tandem
