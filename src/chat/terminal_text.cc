#include "chat/terminal_text.h"

#include "base/printable.h"
#include "base/utf8.h"

namespace tandem::chat {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

std::string filtered(std::string_view valid) {
  std::string shown;
  while (!valid.empty()) {
    const Utf8Char character = front_char(valid);
    const auto bytes = static_cast<size_t>(character.bytes);
    const bool is_return = character.code_point == '\r';  // of "\r\n"; alone it hides a line
    const bool is_layout = character.code_point == '\n' || character.code_point == '\t';
    if (is_layout || is_safe_to_show(character.code_point)) {
      shown += valid.substr(0, bytes);
    } else if (!is_return) {
      append_utf8(kReplacement, shown);
    }
    valid.remove_prefix(bytes);
  }
  return shown;
}

}  // namespace

std::string TerminalText::feed(std::string_view bytes) {
  held_ += bytes;
  std::string valid;
  const size_t used =
      append_repaired_utf8(held_, Utf8Tail::kMayGrow, InvalidBytes::kOnePerSequence, valid);
  held_.erase(0, used);
  return filtered(valid);
}

std::string TerminalText::finish() {
  std::string valid;
  append_repaired_utf8(held_, Utf8Tail::kIsFinal, InvalidBytes::kOnePerSequence, valid);
  held_.clear();
  return filtered(valid);
}

}  // namespace tandem::chat
