// What a server sends to `tandem chat`: nothing of it commands the terminal.
#include "base/printable.h"
#include "base/utf8.h"
#include "chat/conversation.h"
#include "chat/terminal_text.h"
#include "fuzz/fuzz.h"
#include "loadgen/stream_chunk.h"

namespace tandem::chat {
namespace {

void check_safe(std::string_view text) {
  CHECK(!find_invalid_utf8(text));
  while (!text.empty()) {
    const Utf8Char c = front_char(text);
    CHECK(c.code_point == '\n' || c.code_point == '\t' || is_safe_to_show(c.code_point), "{}",
          static_cast<uint32_t>(c.code_point));
    text.remove_prefix(static_cast<size_t>(c.bytes));
  }
}

}  // namespace

TANDEM_FUZZ_TARGET_IN_TIME(input) {
  Answer answer(Nanos{0});
  TerminalText terminal;
  std::string shown;
  const auto on_text = [&](std::string_view text) { shown += terminal.feed(text); };
  const size_t half = input.size() / 2;
  Status fed = answer.feed(input.substr(0, half), Nanos{1}, on_text);
  if (fed.ok()) {
    fed = answer.feed(input.substr(half), Nanos{2}, on_text);
  }
  shown += terminal.finish();
  check_safe(shown);
  check_safe(answer.summary());
  CHECK(answer.has_begun() || answer.text().empty());
  check_safe(loadgen::error_message(input));
  if (const auto ids = model_ids(input); ids.ok()) {
    CHECK(!ids->empty());
  }
  const std::string line = printable(input, 100);
  CHECK(line.size() <= 100 && line.find('\n') == line.npos);
  check_safe(line);
}

}  // namespace tandem::chat
