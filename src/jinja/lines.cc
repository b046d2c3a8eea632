#include "jinja/lines.h"

#include "jinja/unicode.h"

namespace tandem::jinja {
namespace {

std::string interleave(std::string_view text, std::string_view with, int64_t limit, Work& work) {
  std::string out;
  size_t at = 0;
  for (int64_t done = 0; limit < 0 || done < limit; ++done) {
    work.allocate(with.size() + 4);
    out += with;
    if (at == text.size()) return out;
    const size_t bytes = decode_at(text, at).bytes;
    out += text.substr(at, bytes);
    at += bytes;
  }
  return out.append(text.substr(at));
}

bool ends_line(char32_t code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

}  // namespace

std::string replace_text(std::string_view text, std::string_view old, std::string_view with,
                         int64_t limit, Work& work) {
  work.spend_on_bytes(text.size());
  work.allocate(text.size());
  if (old.empty()) return interleave(text, with, limit, work);
  std::string out;
  size_t at = 0;
  for (int64_t done = 0; limit < 0 || done < limit; ++done) {
    const size_t found = text.find(old, at);
    if (found == std::string_view::npos) break;
    work.allocate(with.size());
    out += text.substr(at, found - at);
    out += with;
    at = found + old.size();
  }
  return out.append(text.substr(at));
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = decode_at(text, at);
    if (!ends_line(point.code)) {
      at += point.bytes;
      continue;
    }
    lines.push_back(text.substr(begin, at - begin));
    at += point.code == '\r' && text.substr(at, 2) == "\r\n" ? 2 : point.bytes;
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string pad_text(std::string_view text, int64_t width, std::string_view fill, PadSide side,
                     Work& work) {
  const auto length = static_cast<int64_t>(count_code_points(text));
  const int64_t missing = width - length;
  if (missing <= 0) return std::string(text);
  work.allocate(static_cast<size_t>(missing), fill.size());
  int64_t left = side == PadSide::kLeft ? missing : 0;
  // Python's str.center puts the odd one left when the width is odd, too.
  if (side == PadSide::kBoth) left = missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return out;
}

}  // namespace tandem::jinja
