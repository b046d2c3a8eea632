#include "base/percent_encoding.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem {
namespace {

TEST(PercentEncoding, EscapesStandForTheirBytes) {
  EXPECT_EQ(percent_decode(""), "");
  EXPECT_EQ(percent_decode("plain-text_1"), "plain-text_1");
  EXPECT_EQ(percent_decode("org%2Fmodel%2fname"), "org/model/name");
  EXPECT_EQ(percent_decode("%C3%A9"), "\xC3\xA9");
  EXPECT_EQ(percent_decode("%00"), std::string(1, '\0'));
  EXPECT_EQ(percent_decode("%2525"), "%25") << "an escape is read once";
}

TEST(PercentEncoding, WhatIsNoWholeEscapeStays) {
  for (const char* text :
       {"%", "%2", "a%", "a%4", "%zz", "%4z", "%z4", "%-1", "%+1", "% 1", "%%"}) {
    EXPECT_EQ(percent_decode(text), text);
  }
  EXPECT_EQ(percent_decode("%%41"), "%A");
}

TEST(PercentEncoding, APlusIsASpaceInQueriesAlone) {
  EXPECT_EQ(percent_decode("a+b"), "a+b");
  EXPECT_EQ(query_decode("a+b"), "a b");
  EXPECT_EQ(query_decode("a%2Bb+%2B"), "a+b +");
  EXPECT_EQ(query_decode("%+1"), "% 1");
}

}  // namespace
}  // namespace tandem
