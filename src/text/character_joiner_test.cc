#include <gtest/gtest.h>

#include "text/detokenizer.h"

namespace tandem::text {
namespace {

TEST(CharacterJoiner, ATokenWithinACharacterBeginsWhereTheCharacterDoes) {
  CharacterJoiner joiner(InvalidBytes::kOnePerSequence);
  EXPECT_EQ(joiner.push("a\xE4"), "a");
  EXPECT_EQ(joiner.offset_of("\xB8"), 1);
  EXPECT_EQ(joiner.push("\xB8"), "");
  EXPECT_EQ(joiner.offset_of("\xAD!"), 1);
  EXPECT_EQ(joiner.push("\xAD!"), "\u4e2d!");
  EXPECT_EQ(joiner.offset_of("b"), 3);
}

TEST(CharacterJoiner, BytesThatNothingCompletesComeFirst) {
  for (const auto& [invalid, lost] : {std::pair(InvalidBytes::kOnePerSequence, int64_t{1}),
                                      std::pair(InvalidBytes::kOnePerByte, int64_t{2})}) {
    CharacterJoiner joiner(invalid);
    EXPECT_EQ(joiner.push("\xE4\xB8"), "");
    EXPECT_EQ(joiner.offset_of(""), 0);
    EXPECT_EQ(joiner.offset_of("x"), lost);
    EXPECT_EQ(joiner.offset_of("\xE4"), lost);
    EXPECT_EQ(joiner.offset_of("\xFF"), lost);
    EXPECT_EQ(joiner.flush(), lost == 1 ? "\uFFFD" : "\uFFFD\uFFFD");
    EXPECT_EQ(joiner.offset_of("x"), lost);
    EXPECT_EQ(joiner.flush(), "");
  }
}

}  // namespace
}  // namespace tandem::text
