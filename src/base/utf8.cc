#include "base/utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>

namespace tandem {
namespace {

struct Scan {
  size_t bytes = 0;      // of the character, or of the longest beginning of one (at least 1)
  bool valid = false;    // a whole character
  bool partial = false;  // a beginning that more bytes could complete
};

// Looks at the sequence at the front of `text` (Unicode 15, table 3-7: well-formed byte sequences).
Scan scan_front(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) {
    return {1, true, false};
  }
  size_t length = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
  } else {
    return {1, false, false};
  }
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) {
      return {i, false, true};
    }
    uint8_t low = 0x80;
    uint8_t high = 0xBF;
    if (i == 1) {
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    }
    if (byte(i) < low || byte(i) > high) {
      return {i, false, false};
    }
  }
  return {length, true, false};
}

size_t ascii_run(std::string_view text) {
  size_t i = 0;
  while (i + 8 <= text.size()) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + i, sizeof(word));
    if ((word & 0x8080808080808080ULL) != 0) {
      break;
    }
    i += 8;
  }
  while (i < text.size() && static_cast<uint8_t>(text[i]) < 0x80) {
    ++i;
  }
  return i;
}

}  // namespace

Utf8Char front_char(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<uint8_t>(text[i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) {
    return {lead, 1};
  }
  if (lead < 0xE0) {
    return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  }
  if (lead < 0xF0) {
    return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  }
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4};
}

size_t last_char_begin(std::string_view text) {
  size_t i = text.size() - 1;
  while (i > 0 && continues_char(text[i])) {
    --i;
  }
  return i;
}

int64_t count_chars(std::string_view text) {
  return std::ranges::count_if(text, std::not_fn(continues_char));
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto put = [&](char32_t bits) { out.push_back(static_cast<char>(bits)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

std::optional<size_t> find_invalid_utf8(std::string_view text) {
  size_t i = 0;
  while (true) {
    i += ascii_run(text.substr(i));
    if (i == text.size()) {
      return std::nullopt;
    }
    const Scan scan = scan_front(text.substr(i));
    if (!scan.valid) {
      return i;
    }
    i += scan.bytes;
  }
}

Status check_utf8(std::string_view text) {
  if (const std::optional<size_t> at = find_invalid_utf8(text)) {
    return invalid_argument(
        fmt::format("the text is not valid UTF-8: byte {} (0x{:02x}) begins no complete character; "
                    "send text encoded as UTF-8",
                    *at, static_cast<uint8_t>(text[*at])));
  }
  return {};
}

size_t append_repaired_utf8(std::string_view bytes, Utf8Tail tail, InvalidBytes invalid,
                            std::string& out) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  size_t i = 0;
  while (i < bytes.size()) {
    const size_t run = ascii_run(bytes.substr(i));
    out.append(bytes.substr(i, run));
    i += run;
    if (i == bytes.size()) {
      break;
    }
    const Scan scan = scan_front(bytes.substr(i));
    if (scan.valid) {
      out.append(bytes.substr(i, scan.bytes));
    } else if (scan.partial && tail == Utf8Tail::kMayGrow) {
      break;
    } else {
      const size_t times = invalid == InvalidBytes::kOnePerByte ? scan.bytes : 1;
      for (size_t k = 0; k < times; ++k) {
        out.append(kReplacement);
      }
    }
    i += scan.bytes;
  }
  return i;
}

bool is_unicode_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

}  // namespace tandem
