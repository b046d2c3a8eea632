#include "base/printable.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(Printable, KeepsWordsAndDropsCommands) {
  EXPECT_EQ(printable("Grüße 世界 🙂"), "Grüße 世界 🙂");
  EXPECT_EQ(printable("a\nb\tc\r"), "a b c ");
  EXPECT_EQ(printable("\x1b[2J\x07\x7F"), "?[2J??");
  EXPECT_EQ(printable("\u009B2J \u202Eevil\u2066 \u2028"), "?2J ?evil? ?");
  EXPECT_EQ(printable("a\xff\xc3,\xed\xa0\x80\xf5z\xe4\xbd"), "a??,????z??");
}

TEST(Printable, CutsBetweenCharacters) {
  EXPECT_EQ(printable("abc", 2), "ab");
  EXPECT_EQ(printable("a世界", 5), "a世");
  EXPECT_EQ(printable("abc", 0), "");
}

}  // namespace
}  // namespace tandem
