#include "text/token_decoder.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "text/byte_level.h"
#include "text/json_fields.h"

namespace tandem::text {
namespace {

constexpr int64_t kMostStripped = 64;

Result<std::string> replace_all(const Pattern& pattern, const std::string& content,
                                const std::string& token) {
  Pattern::Finder finder(pattern);
  std::vector<ByteRange> matches;
  RETURN_IF_ERROR(finder.find_all(token, matches));
  std::string result;
  size_t done = 0;
  for (const ByteRange& match : matches) {
    result.append(token, done, match.begin - done).append(content);
    done = match.end;
  }
  return result.append(token, done);
}

}  // namespace

TokenDecoder TokenDecoder::byte_level() {
  TokenDecoder decoder;
  decoder.steps_.emplace_back(ByteLevel{});
  return decoder;
}

Result<TokenDecoder> TokenDecoder::parse(const nlohmann::json& value, std::string_view where) {
  TokenDecoder decoder;
  if (value.is_null()) {
    return unsupported(where, "a tokenizer without a decoder");
  }
  RETURN_IF_ERROR(decoder.parse_step(value, where));
  return decoder;
}

Status TokenDecoder::parse_step(const nlohmann::json& value, std::string_view where) {
  if (!value.is_object()) {
    return bad_file(where, "is not an object");
  }
  ASSIGN_OR_RETURN(const std::string type, string_field(value, "type", where));
  if (type == "Sequence") {
    const nlohmann::json* list = find_field(value, "decoders");
    if (list == nullptr || !list->is_array()) {
      return bad_file(where, "\"decoders\" is not a list");
    }
    for (const nlohmann::json& item : *list) {
      RETURN_IF_ERROR(parse_step(item, where));
    }
    return {};
  }
  if (type == "Strip") {
    return parse_strip(value, where);
  }
  if (type == "Fuse") {
    fused_ = true;
    return {};
  }
  if (fused_) {
    return unsupported(where, fmt::format("the decoder \"{}\" after \"Fuse\"", type));
  }
  if (type == "ByteLevel") {
    steps_.emplace_back(ByteLevel{});
    return {};
  }
  if (type == "ByteFallback") {
    steps_.emplace_back(ByteFallback{});
    invalid_bytes_ = InvalidBytes::kOnePerByte;
    return {};
  }
  if (type == "Replace") {
    return parse_replace(value, where);
  }
  if (type == "Metaspace") {
    return parse_metaspace(value, where);
  }
  return unsupported(where, fmt::format("the decoder \"{}\"", type));
}

Status TokenDecoder::parse_replace(const nlohmann::json& value, std::string_view where) {
  const nlohmann::json* what = find_field(value, "pattern");
  ASSIGN_OR_RETURN(Pattern pattern,
                   Pattern::parse(what == nullptr ? nlohmann::json() : *what, where));
  ASSIGN_OR_RETURN(std::string content, string_field(value, "content", where));
  if (content.size() > size_t{kMostStripped}) {
    return bad_file(where, fmt::format("\"content\" has {} bytes", content.size()));
  }
  steps_.emplace_back(Replace{std::move(pattern), std::move(content)});
  return {};
}

Status TokenDecoder::parse_strip(const nlohmann::json& value, std::string_view where) {
  Strip strip;
  ASSIGN_OR_RETURN(strip.content, string_field(value, "content", where));
  ASSIGN_OR_RETURN(strip.start, int_field(value, "start", where, 0));
  ASSIGN_OR_RETURN(strip.stop, int_field(value, "stop", where, 0));
  if (strip.content.empty() || strip.start < 0 || strip.start > kMostStripped || strip.stop < 0 ||
      strip.stop > kMostStripped) {
    return bad_file(where, fmt::format("a \"Strip\" with \"start\" {} and \"stop\" {}; they go "
                                       "from 0 to {}",
                                       strip.start, strip.stop, kMostStripped));
  }
  if (!fused_) {
    steps_.emplace_back(std::move(strip));
    return {};
  }
  // Text that was sent cannot be taken back, so only the beginning of a whole text can be stripped.
  if (strip.stop != 0 || strip.content != " ") {
    return unsupported(where,
                       "a \"Strip\" of the whole text of other than spaces at its beginning");
  }
  stripped_leading_spaces_ += static_cast<int32_t>(strip.start);
  return {};
}

Status TokenDecoder::parse_metaspace(const nlohmann::json& value, std::string_view where) {
  ASSIGN_OR_RETURN(std::string replacement,
                   string_field(value, "replacement", where, "\xE2\x96\x81"));
  if (replacement.empty()) {
    return bad_file(where, "\"replacement\" is empty");
  }
  ASSIGN_OR_RETURN(const bool prefix, bool_field(value, "add_prefix_space", where, true));
  ASSIGN_OR_RETURN(const std::string scheme,
                   string_field(value, "prepend_scheme", where, prefix ? "always" : "never"));
  steps_.emplace_back(Replace{Pattern::literal(std::move(replacement)), " "});
  stripped_leading_spaces_ += scheme == "never" ? 0 : 1;
  return {};
}

Result<std::string> TokenDecoder::bytes(std::string_view token, TokenOrigin origin) const {
  std::string result(token);
  for (const Step& step : steps_) {
    if (std::holds_alternative<ByteLevel>(step)) {
      if (origin == TokenOrigin::kModel) {
        result = byte_level_decode(result).value_or(result);
      }
    } else if (std::holds_alternative<ByteFallback>(step)) {
      if (const auto byte = byte_fallback_value(result)) {
        result.assign(1, static_cast<char>(*byte));
        return result;  // a byte alone is no text for further steps
      }
    } else if (const auto* replace = std::get_if<Replace>(&step)) {
      ASSIGN_OR_RETURN(result, replace_all(replace->pattern, replace->content, result));
    } else {
      const auto& strip = std::get<Strip>(step);
      for (int64_t i = 0; i < strip.start && result.starts_with(strip.content); ++i) {
        result.erase(0, strip.content.size());
      }
      for (int64_t i = 0; i < strip.stop && result.ends_with(strip.content); ++i) {
        result.resize(result.size() - strip.content.size());
      }
    }
  }
  return result;
}

}  // namespace tandem::text
