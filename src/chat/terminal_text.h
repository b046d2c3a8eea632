// Makes a model's words safe for a terminal: control characters, which could move the cursor,
// change the window's title or answer for the user, become U+FFFD, and so do bytes that are not
// UTF-8 and the marks that reverse the direction of a line. Line ends and tabs
// stay; carriage returns are dropped.
// Threads: one owner.
#pragma once

#include <string>
#include <string_view>

namespace tandem::chat {

class TerminalText {
 public:
  // What may be shown of the text so far; a character that is cut waits for its rest.
  std::string feed(std::string_view bytes);
  // The rest, at the end of the text.
  std::string finish();

 private:
  std::string held_;  // the beginning of a character
};

}  // namespace tandem::chat
