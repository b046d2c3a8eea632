#include "chat/terminal_text.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tandem::chat {
namespace {

std::string shown(std::string_view bytes, size_t piece) {
  TerminalText text;
  std::string all;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size()))) {
    all += text.feed(bytes.substr(0, piece));
  }
  return all + text.finish();
}

TEST(TerminalText, WordsStayHoweverTheyAreCut) {
  const std::string words = "Grüße,\n\tWelt 世界 🙂";
  for (size_t piece = 1; piece < 6; ++piece) {
    EXPECT_EQ(shown(words, piece), words);
  }
}

TEST(TerminalText, NothingReachesTheTerminalsInterpreter) {
  const std::string r = "\xEF\xBF\xBD";  // U+FFFD
  for (size_t piece = 1; piece < 6; ++piece) {
    EXPECT_EQ(shown("\x1b[31mred\x1b]0;title\x07", piece), r + "[31mred" + r + "]0;title" + r);
    EXPECT_EQ(shown("a\bb\x7F", piece), "a" + r + "b" + r);
    EXPECT_EQ(shown("\xC2\x9B"
                    "31m",
                    piece),
              r + "31m")
        << "CSI as one character of C1";
    EXPECT_EQ(shown("\x9B"
                    "31m",
                    piece),
              r + "31m")
        << "and as a byte";
    EXPECT_EQ(shown("a\r\nb\rc", piece), "a\nbc");
    EXPECT_EQ(shown("x\xE2\x80\xAEy", piece), "x" + r + "y") << "right-to-left override";
  }
  EXPECT_EQ(shown("\xE4\xB8", 1), r) << "half of a character at the end";
}

}  // namespace
}  // namespace tandem::chat
