#include "jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/utf8.h"

namespace tandem::jinja {
namespace {

// Letters whose other case is several code points (Unicode's SpecialCasing), which utf8proc leaves
// out. Sorted.
struct CaseText {
  char32_t code;
  const char8_t* text;
};
// clang-format off
constexpr CaseText kUpperTexts[] = {
    {0xDF, u8"SS"}, {0x149, u8"\u02bcN"}, {0x1F0, u8"J\u030c"}, {0x390, u8"\u0399\u0308\u0301"},
    {0x3B0, u8"\u03a5\u0308\u0301"}, {0x587, u8"\u0535\u0552"}, {0x1E96, u8"H\u0331"},
    {0x1E97, u8"T\u0308"}, {0x1E98, u8"W\u030a"}, {0x1E99, u8"Y\u030a"}, {0x1E9A, u8"A\u02be"},
    {0x1F50, u8"\u03a5\u0313"}, {0x1F52, u8"\u03a5\u0313\u0300"},
    {0x1F54, u8"\u03a5\u0313\u0301"}, {0x1F56, u8"\u03a5\u0313\u0342"},
    {0x1F80, u8"\u1f08\u0399"}, {0x1F81, u8"\u1f09\u0399"}, {0x1F82, u8"\u1f0a\u0399"},
    {0x1F83, u8"\u1f0b\u0399"}, {0x1F84, u8"\u1f0c\u0399"}, {0x1F85, u8"\u1f0d\u0399"},
    {0x1F86, u8"\u1f0e\u0399"}, {0x1F87, u8"\u1f0f\u0399"}, {0x1F88, u8"\u1f08\u0399"},
    {0x1F89, u8"\u1f09\u0399"}, {0x1F8A, u8"\u1f0a\u0399"}, {0x1F8B, u8"\u1f0b\u0399"},
    {0x1F8C, u8"\u1f0c\u0399"}, {0x1F8D, u8"\u1f0d\u0399"}, {0x1F8E, u8"\u1f0e\u0399"},
    {0x1F8F, u8"\u1f0f\u0399"}, {0x1F90, u8"\u1f28\u0399"}, {0x1F91, u8"\u1f29\u0399"},
    {0x1F92, u8"\u1f2a\u0399"}, {0x1F93, u8"\u1f2b\u0399"}, {0x1F94, u8"\u1f2c\u0399"},
    {0x1F95, u8"\u1f2d\u0399"}, {0x1F96, u8"\u1f2e\u0399"}, {0x1F97, u8"\u1f2f\u0399"},
    {0x1F98, u8"\u1f28\u0399"}, {0x1F99, u8"\u1f29\u0399"}, {0x1F9A, u8"\u1f2a\u0399"},
    {0x1F9B, u8"\u1f2b\u0399"}, {0x1F9C, u8"\u1f2c\u0399"}, {0x1F9D, u8"\u1f2d\u0399"},
    {0x1F9E, u8"\u1f2e\u0399"}, {0x1F9F, u8"\u1f2f\u0399"}, {0x1FA0, u8"\u1f68\u0399"},
    {0x1FA1, u8"\u1f69\u0399"}, {0x1FA2, u8"\u1f6a\u0399"}, {0x1FA3, u8"\u1f6b\u0399"},
    {0x1FA4, u8"\u1f6c\u0399"}, {0x1FA5, u8"\u1f6d\u0399"}, {0x1FA6, u8"\u1f6e\u0399"},
    {0x1FA7, u8"\u1f6f\u0399"}, {0x1FA8, u8"\u1f68\u0399"}, {0x1FA9, u8"\u1f69\u0399"},
    {0x1FAA, u8"\u1f6a\u0399"}, {0x1FAB, u8"\u1f6b\u0399"}, {0x1FAC, u8"\u1f6c\u0399"},
    {0x1FAD, u8"\u1f6d\u0399"}, {0x1FAE, u8"\u1f6e\u0399"}, {0x1FAF, u8"\u1f6f\u0399"},
    {0x1FB2, u8"\u1fba\u0399"}, {0x1FB3, u8"\u0391\u0399"}, {0x1FB4, u8"\u0386\u0399"},
    {0x1FB6, u8"\u0391\u0342"}, {0x1FB7, u8"\u0391\u0342\u0399"}, {0x1FBC, u8"\u0391\u0399"},
    {0x1FC2, u8"\u1fca\u0399"}, {0x1FC3, u8"\u0397\u0399"}, {0x1FC4, u8"\u0389\u0399"},
    {0x1FC6, u8"\u0397\u0342"}, {0x1FC7, u8"\u0397\u0342\u0399"}, {0x1FCC, u8"\u0397\u0399"},
    {0x1FD2, u8"\u0399\u0308\u0300"}, {0x1FD3, u8"\u0399\u0308\u0301"},
    {0x1FD6, u8"\u0399\u0342"}, {0x1FD7, u8"\u0399\u0308\u0342"},
    {0x1FE2, u8"\u03a5\u0308\u0300"}, {0x1FE3, u8"\u03a5\u0308\u0301"},
    {0x1FE4, u8"\u03a1\u0313"}, {0x1FE6, u8"\u03a5\u0342"}, {0x1FE7, u8"\u03a5\u0308\u0342"},
    {0x1FF2, u8"\u1ffa\u0399"}, {0x1FF3, u8"\u03a9\u0399"}, {0x1FF4, u8"\u038f\u0399"},
    {0x1FF6, u8"\u03a9\u0342"}, {0x1FF7, u8"\u03a9\u0342\u0399"}, {0x1FFC, u8"\u03a9\u0399"},
    {0xFB00, u8"FF"}, {0xFB01, u8"FI"}, {0xFB02, u8"FL"}, {0xFB03, u8"FFI"}, {0xFB04, u8"FFL"},
    {0xFB05, u8"ST"}, {0xFB06, u8"ST"}, {0xFB13, u8"\u0544\u0546"}, {0xFB14, u8"\u0544\u0535"},
    {0xFB15, u8"\u0544\u053b"}, {0xFB16, u8"\u054e\u0546"}, {0xFB17, u8"\u0544\u053d"},
};
constexpr CaseText kTitleTexts[] = {
    {0xDF, u8"Ss"}, {0x149, u8"\u02bcN"}, {0x1F0, u8"J\u030c"}, {0x390, u8"\u0399\u0308\u0301"},
    {0x3B0, u8"\u03a5\u0308\u0301"}, {0x587, u8"\u0535\u0582"}, {0x1E96, u8"H\u0331"},
    {0x1E97, u8"T\u0308"}, {0x1E98, u8"W\u030a"}, {0x1E99, u8"Y\u030a"}, {0x1E9A, u8"A\u02be"},
    {0x1F50, u8"\u03a5\u0313"}, {0x1F52, u8"\u03a5\u0313\u0300"},
    {0x1F54, u8"\u03a5\u0313\u0301"}, {0x1F56, u8"\u03a5\u0313\u0342"},
    {0x1FB2, u8"\u1fba\u0345"}, {0x1FB4, u8"\u0386\u0345"}, {0x1FB6, u8"\u0391\u0342"},
    {0x1FB7, u8"\u0391\u0342\u0345"}, {0x1FC2, u8"\u1fca\u0345"}, {0x1FC4, u8"\u0389\u0345"},
    {0x1FC6, u8"\u0397\u0342"}, {0x1FC7, u8"\u0397\u0342\u0345"},
    {0x1FD2, u8"\u0399\u0308\u0300"}, {0x1FD3, u8"\u0399\u0308\u0301"},
    {0x1FD6, u8"\u0399\u0342"}, {0x1FD7, u8"\u0399\u0308\u0342"},
    {0x1FE2, u8"\u03a5\u0308\u0300"}, {0x1FE3, u8"\u03a5\u0308\u0301"},
    {0x1FE4, u8"\u03a1\u0313"}, {0x1FE6, u8"\u03a5\u0342"}, {0x1FE7, u8"\u03a5\u0308\u0342"},
    {0x1FF2, u8"\u1ffa\u0345"}, {0x1FF4, u8"\u038f\u0345"}, {0x1FF6, u8"\u03a9\u0342"},
    {0x1FF7, u8"\u03a9\u0342\u0345"}, {0xFB00, u8"Ff"}, {0xFB01, u8"Fi"}, {0xFB02, u8"Fl"},
    {0xFB03, u8"Ffi"}, {0xFB04, u8"Ffl"}, {0xFB05, u8"St"}, {0xFB06, u8"St"},
    {0xFB13, u8"\u0544\u0576"}, {0xFB14, u8"\u0544\u0565"}, {0xFB15, u8"\u0544\u056b"},
    {0xFB16, u8"\u054e\u0576"}, {0xFB17, u8"\u0544\u056d"},
};
// clang-format on

const char* find_text(std::span<const CaseText> texts, char32_t code) {
  const auto at = std::lower_bound(texts.begin(), texts.end(), code,
                                   [](const CaseText& t, char32_t c) { return t.code < c; });
  return at != texts.end() && at->code == code ? reinterpret_cast<const char*>(at->text) : nullptr;
}

utf8proc_category_t category_of(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

char32_t upper_of(char32_t code) {
  if (code < 0x80) return code >= 'a' && code <= 'z' ? code - 32 : code;
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code)));
}

char32_t lower_of(char32_t code) {
  if (code < 0x80) return code >= 'A' && code <= 'Z' ? code + 32 : code;
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}

void append_upper(std::string& out, char32_t code) {
  if (const char* special = find_text(kUpperTexts, code)) {
    out += special;
  } else {
    append_utf8(upper_of(code), out);
  }
}

void append_title(std::string& out, char32_t code) {
  if (const char* special = find_text(kTitleTexts, code)) {
    out += special;
  } else {
    append_utf8(static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(code))), out);
  }
}

// Sigma at the end of a word has a form of its own.
bool is_final_sigma(std::string_view text, size_t at, CodePoint point) {
  const size_t next = at + point.bytes;
  const bool letter_after = next < text.size() && is_cased(decode_at(text, next).code);
  if (at == 0 || letter_after) return false;
  return is_cased(decode_at(text, last_char_begin(text.substr(0, at))).code);
}

void append_lower(std::string& out, std::string_view text, size_t at, CodePoint point) {
  if (point.code == 0x3A3 && is_final_sigma(text, at, point)) {
    append_utf8(0x3C2, out);
  } else if (point.code == 0x130) {
    out += "i\xCC\x87";  // the one letter whose lower case is two code points
  } else {
    append_utf8(lower_of(point.code), out);
  }
}

template <class Keep>
std::string_view strip_if(std::string_view text, Side side, Keep strippable) {
  size_t begin = 0;
  size_t end = text.size();
  if (side != Side::kRight) {
    while (begin < end) {
      const CodePoint point = decode_at(text, begin);
      if (!strippable(point.code)) break;
      begin += point.bytes;
    }
  }
  if (side != Side::kLeft) {
    while (end > begin) {
      const size_t start = last_char_begin(text.substr(0, end));
      if (!strippable(decode_at(text, start).code)) break;
      end = start;
    }
  }
  return text.substr(begin, end - begin);
}

}  // namespace

CodePoint decode_at(std::string_view text, size_t at) {
  const Utf8Char front = front_char(text.substr(at));
  return {front.code_point, static_cast<size_t>(front.bytes)};
}

size_t count_code_points(std::string_view text) { return static_cast<size_t>(count_chars(text)); }

size_t byte_offset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    if (continues_char(text[at])) continue;
    if (index == 0) return at;
    --index;
  }
  return at;
}

bool is_space(char32_t code) {
  if (code < 0x80)
    return code == ' ' || (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x1F);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_printable(char32_t code) {
  if (code < 0x7F) return code >= 0x20;
  switch (category_of(code)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

bool is_alpha(char32_t code) {
  const utf8proc_category_t category = category_of(code);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t code) {
  return code < 0x80 ? code >= '0' && code <= '9' : category_of(code) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(char32_t code) {
  if (is_decimal(code)) return true;
  // Unicode's Numeric_Type=Digit, of which utf8proc does not know.
  constexpr std::pair<char32_t, char32_t> kDigits[] = {
      {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
      {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
      {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
      {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
      {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
  return std::any_of(std::begin(kDigits), std::end(kDigits), [code](const auto& range) {
    return code >= range.first && code <= range.second;
  });
}

bool is_numeric(char32_t code) {
  const utf8proc_category_t category = category_of(code);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool is_alphanumeric(char32_t code) { return is_alpha(code) || is_numeric(code); }

bool begins_name(char32_t code) {
  return code == '_' || is_alpha(code) || category_of(code) == UTF8PROC_CATEGORY_NL;
}

bool continues_name(char32_t code) {
  const utf8proc_category_t category = category_of(code);
  return begins_name(code) || category == UTF8PROC_CATEGORY_MN ||
         category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ND ||
         category == UTF8PROC_CATEGORY_PC;
}

bool is_lower(char32_t code) {
  return code < 0x80 ? code >= 'a' && code <= 'z'
                     : utf8proc_islower(static_cast<utf8proc_int32_t>(code)) != 0;
}

bool is_cased(char32_t code) {
  return upper_of(code) != code || lower_of(code) != code ||
         find_text(kUpperTexts, code) != nullptr;
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = decode_at(text, at);
    append_upper(out, point.code);
    at += point.bytes;
  }
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = decode_at(text, at);
    append_lower(out, text, at, point);
    at += point.bytes;
  }
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool inside_word = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = decode_at(text, at);
    if (inside_word) {
      append_lower(out, text, at, point);
    } else {
      append_title(out, point.code);
    }
    inside_word = is_cased(point.code);
    at += point.bytes;
  }
  return out;
}

std::string to_swapped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = decode_at(text, at);
    if (is_lower(point.code)) {
      append_upper(out, point.code);
    } else if (category_of(point.code) == UTF8PROC_CATEGORY_LT) {
      append_utf8(point.code, out);  // neither upper nor lower case
    } else {
      append_lower(out, text, at, point);
    }
    at += point.bytes;
  }
  return out;
}

std::string to_folded(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = decode_at(text, at);
    utf8proc_int32_t folded[8] = {};
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(point.code), folded,
                                               std::ssize(folded), UTF8PROC_CASEFOLD, nullptr);
    for (utf8proc_ssize_t i = 0; i < std::min<utf8proc_ssize_t>(count, std::ssize(folded)); ++i) {
      append_utf8(static_cast<char32_t>(folded[i]), out);
    }
    at += point.bytes;
  }
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = decode_at(text, at);
    if (at == 0) {
      append_title(out, point.code);
    } else {
      append_lower(out, text, at, point);
    }
    at += point.bytes;
  }
  return out;
}

std::string_view strip(std::string_view text, Side side) { return strip_if(text, side, is_space); }

std::string_view strip_characters(std::string_view text, std::string_view characters, Side side) {
  return strip_if(text, side, [&](char32_t code) {
    for (size_t at = 0; at < characters.size();) {
      const CodePoint point = decode_at(characters, at);
      if (point.code == code) return true;
      at += point.bytes;
    }
    return false;
  });
}

}  // namespace tandem::jinja
