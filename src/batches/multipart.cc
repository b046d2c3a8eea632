#include "batches/multipart.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/percent_encoding.h"

namespace tandem::batches {
namespace {

char lower_letter(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same_word(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b,
                            [](char x, char y) { return lower_letter(x) == lower_letter(y); });
}

std::string_view without_spaces(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) {
    return {};
  }
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Takes `name=value` or `name="va\"lue"` from the front of "; name=value; ..." . A parameter
// without
// '=' has an empty value. nullopt: the end, or no parameter.
struct Parameter {
  std::string_view name;
  std::string value;
};
std::optional<Parameter> take_parameter(std::string_view& text) {
  text = without_spaces(text);
  if (!text.starts_with(';')) {
    return std::nullopt;
  }
  text.remove_prefix(1);
  const size_t name_end = std::min(text.find_first_of("=;"), text.size());
  Parameter parameter{.name = without_spaces(text.substr(0, name_end)), .value = {}};
  text.remove_prefix(name_end);
  if (!text.starts_with('=')) {
    return parameter;
  }
  text.remove_prefix(1);
  if (!text.starts_with('"')) {
    const size_t end = std::min(text.find(';'), text.size());
    parameter.value = without_spaces(text.substr(0, end));
    text.remove_prefix(end);
    return parameter;
  }
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '"') {
      text.remove_prefix(i + 1);
      return parameter;
    }
    if (text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == '"' || text[i + 1] == '\\')) {
      ++i;
    }
    parameter.value += text[i];
  }
  return std::nullopt;  // no closing quote
}

// As browsers write names: a quote and line ends are escaped, and nothing else, not even '%'.
std::string browser_text(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size();) {
    const std::string_view escape = text.substr(i, 3);
    const bool escaped =
        same_word(escape, "%22") || same_word(escape, "%0d") || same_word(escape, "%0a");
    plain += escaped ? percent_decode(escape) : std::string(1, text[i]);
    i += escaped ? escape.size() : 1;
  }
  return plain;
}

// Of "UTF-8'en'na%C3%AFve.jsonl" (RFC 8187). nullopt: another form, or another encoding.
std::optional<std::string> extended_text(std::string_view text) {
  const size_t language = text.find('\'');
  const size_t begin =
      language == std::string_view::npos ? language : text.find('\'', language + 1);
  if (begin == std::string_view::npos || !same_word(text.substr(0, language), "utf-8")) {
    return std::nullopt;
  }
  return percent_decode(text.substr(begin + 1));
}

Error malformed(std::string_view what) {
  return invalid_argument(
      fmt::format("the body is not valid multipart/form-data: {}; send the file with a client's "
                  "upload function, or with curl -F",
                  what));
}

// The headers of a part, each with its line end before it.
Result<PartHead> parse_part_head(std::string_view lines) {
  constexpr std::string_view kHeader = "content-disposition";
  while (!lines.empty()) {
    lines.remove_prefix(2);
    const std::string_view line = lines.substr(0, lines.find("\r\n"));
    lines.remove_prefix(line.size());
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || !same_word(line.substr(0, colon), kHeader)) {
      continue;
    }
    std::string_view value = without_spaces(line.substr(colon + 1));
    const size_t type_end = std::min(value.find(';'), value.size());
    if (!same_word(without_spaces(value.substr(0, type_end)), "form-data")) {
      return malformed("a part's Content-Disposition is not form-data");
    }
    value.remove_prefix(type_end);
    PartHead head;
    bool named = false;
    std::optional<std::string> extended;
    while (std::optional<Parameter> parameter = take_parameter(value)) {
      if (same_word(parameter->name, "name")) {
        head.name = browser_text(parameter->value);
        named = true;
      } else if (same_word(parameter->name, "filename")) {
        head.filename = browser_text(parameter->value);
      } else if (same_word(parameter->name, "filename*")) {
        extended = extended_text(parameter->value);
      }
    }
    if (extended) {
      head.filename = std::move(extended);
    }
    if (!named) {
      return malformed("a part has no name");
    }
    return head;
  }
  return malformed("a part has no Content-Disposition");
}

}  // namespace

Result<MultipartReader> MultipartReader::make(std::string_view content_type) {
  constexpr size_t kMaxBoundary = 70;  // RFC 2046
  const size_t type_end = std::min(content_type.find(';'), content_type.size());
  if (!same_word(without_spaces(content_type.substr(0, type_end)), "multipart/form-data")) {
    return invalid_argument(
        "a file is uploaded as multipart/form-data with the fields 'purpose' and 'file'; check the "
        "header Content-Type",
        "Content-Type");
  }
  std::string_view rest = content_type.substr(type_end);
  while (const std::optional<Parameter> parameter = take_parameter(rest)) {
    if (same_word(parameter->name, "boundary")) {
      const std::string& boundary = parameter->value;
      if (boundary.empty() || boundary.size() > kMaxBoundary ||
          std::ranges::any_of(boundary, [](char c) { return c < ' ' || c > '~'; })) {
        break;
      }
      return MultipartReader(boundary);
    }
  }
  return invalid_argument(
      "the header Content-Type has no usable boundary (1 to 70 printable characters)",
      "Content-Type");
}

Status MultipartReader::feed(std::string_view bytes, PartSink& sink) {
  if (place_ == Place::kEpilogue) {
    return {};  // to be ignored
  }
  buffer_.erase(0, std::exchange(taken_, 0));
  buffer_ += bytes;
  for (bool more = true; more;) {
    Result<bool> took = false;
    switch (place_) {
      case Place::kPreamble:
      case Place::kData:
        took = take_data(sink);
        break;
      case Place::kDelimiter:
        took = take_delimiter();
        break;
      case Place::kHead:
        took = take_head(sink);
        break;
      case Place::kEpilogue:
        buffer_.clear();
        taken_ = 0;
        break;
    }
    ASSIGN_OR_RETURN(more, std::move(took));
  }
  return {};
}

// Data up to the next delimiter. What may be the beginning of one stays.
Result<bool> MultipartReader::take_data(PartSink& sink) {
  const size_t found = buffer_.find(delimiter_, taken_);
  const size_t kept = std::min(delimiter_.size() - 1, buffer_.size() - taken_);
  const size_t end = found == std::string::npos ? buffer_.size() - kept : found;
  if (place_ == Place::kData && end > taken_) {
    RETURN_IF_ERROR(sink.part_data(std::string_view(buffer_).substr(taken_, end - taken_)));
  }
  taken_ = end;
  if (found == std::string::npos) {
    return false;
  }
  taken_ += delimiter_.size();
  if (place_ == Place::kData) {
    RETURN_IF_ERROR(sink.end_part());
  }
  place_ = Place::kDelimiter;
  return true;
}

// What follows a delimiter: "--" ends the body, a line end begins a part; spaces may come before.
Result<bool> MultipartReader::take_delimiter() {
  const std::string_view rest = std::string_view(buffer_).substr(taken_);
  if (rest.size() < 2) {
    return false;
  }
  if (rest.starts_with("--")) {
    place_ = Place::kEpilogue;
    return true;
  }
  const size_t line_end = rest.find_first_not_of(" \t");
  if (std::min(line_end, rest.size()) > kMaxHeadBytes) {
    return malformed("endless spaces behind a delimiter");
  }
  if (line_end == std::string_view::npos || rest.size() < line_end + 2) {
    return false;
  }
  if (!rest.substr(line_end).starts_with("\r\n")) {
    return malformed("a delimiter is not alone in its line");
  }
  taken_ += line_end;
  place_ = Place::kHead;
  return true;
}

Result<bool> MultipartReader::take_head(PartSink& sink) {
  const std::string_view rest = std::string_view(buffer_).substr(taken_);
  const size_t end = rest.substr(0, kMaxHeadBytes).find("\r\n\r\n");
  if (end == std::string_view::npos) {
    if (rest.size() >= kMaxHeadBytes) {
      return malformed(fmt::format("a part's headers have more than {} bytes", kMaxHeadBytes));
    }
    return false;
  }
  if (++parts_ > kMaxParts) {
    return malformed(fmt::format("it has more than {} parts", kMaxParts));
  }
  ASSIGN_OR_RETURN(const PartHead head, parse_part_head(rest.substr(0, end)));
  RETURN_IF_ERROR(sink.begin_part(head));
  taken_ += end + std::string_view("\r\n\r\n").size();
  place_ = Place::kData;
  return true;
}

Status MultipartReader::finish() const {
  if (place_ == Place::kEpilogue) {
    return {};
  }
  return malformed("it ends before its last delimiter, so the upload was cut off");
}

}  // namespace tandem::batches
