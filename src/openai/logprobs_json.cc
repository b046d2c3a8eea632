#include "openai/logprobs_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>

#include "openai/json_output.h"
#include "text/utf8.h"

namespace tandem::openai {

namespace {

void append_comma(std::string& out) {
  if (!out.empty()) {
    out += ',';
  }
}

}  // namespace

// A token that is part of a character: completions key their map of alternatives by these strings,
// so different bytes must stay different; chat has the bytes beside the string.
void LogprobsJson::append_token_string(std::string& out, TokenId token) const {
  if (style_.tokens_as_ids) {
    fmt::format_to(std::back_inserter(out), "\"token_id:{}\"", token);
    return;
  }
  const std::string_view bytes = tokenizer_.token_bytes(token);
  if (!text::find_invalid_utf8(bytes)) {
    append_string(out, bytes);
  } else if (style_.endpoint == Endpoint::kChat) {
    append_untrusted_string(out, bytes);
  } else {
    out += "\"bytes:";
    for (const char byte : bytes) {
      fmt::format_to(std::back_inserter(out), "\\\\x{:02x}", static_cast<uint8_t>(byte));
    }
    out += '"';
  }
}

void LogprobsJson::append_chat_token(std::string& out, TokenId token, float logprob) const {
  out += R"({"token":)";
  append_token_string(out, token);
  out += R"(,"logprob":)";
  append_logprob(out, logprob);
  out += R"(,"bytes":[)";
  const std::string_view bytes = tokenizer_.token_bytes(token);
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) {
      out += ',';
    }
    append_integer(out, static_cast<uint8_t>(bytes[i]));
  }
  out += ']';
}

int64_t LogprobsJson::chars_of(TokenId token) const {
  // Bytes that continue a character count with the token that began it.
  return std::ranges::count_if(tokenizer_.token_bytes(token), [](char byte) {
    return (static_cast<uint8_t>(byte) & 0xC0) != 0x80;
  });
}

void LogprobsJson::add_top_of_completion(TokenId token, const LogprobInfo& info) {
  append_comma(top_logprobs_);
  top_logprobs_ += '{';
  const size_t shown = std::min(info.top.size(), static_cast<size_t>(style_.top));
  bool has_chosen = false;
  for (size_t i = 0; i < shown; ++i) {
    if (i > 0) {
      top_logprobs_ += ',';
    }
    append_token_string(top_logprobs_, info.top[i].token);
    top_logprobs_ += ':';
    append_logprob(top_logprobs_, info.top[i].logprob);
    has_chosen = has_chosen || info.top[i].token == token;
  }
  if (!has_chosen) {
    if (shown > 0) {
      top_logprobs_ += ',';
    }
    append_token_string(top_logprobs_, token);
    top_logprobs_ += ':';
    append_logprob(top_logprobs_, info.logprob);
  }
  top_logprobs_ += '}';
}

void LogprobsJson::add(TokenId token, const LogprobInfo& info, int64_t offset_chars) {
  append_comma(tokens_);
  if (style_.endpoint == Endpoint::kCompletions) {
    append_token_string(tokens_, token);
    append_comma(token_logprobs_);
    append_logprob(token_logprobs_, info.logprob);
    add_top_of_completion(token, info);
    append_comma(text_offset_);
    append_integer(text_offset_, offset_chars);
    return;
  }
  append_chat_token(tokens_, token, info.logprob);
  tokens_ += R"(,"top_logprobs":[)";
  const size_t shown = std::min(info.top.size(), static_cast<size_t>(style_.top));
  for (size_t i = 0; i < shown; ++i) {
    if (i > 0) {
      tokens_ += ',';
    }
    append_chat_token(tokens_, info.top[i].token, info.top[i].logprob);
    tokens_ += '}';
  }
  tokens_ += "]}";
}

void LogprobsJson::move_to(std::string& out) {
  if (!wanted()) {
    out += "null";
    return;
  }
  if (style_.endpoint == Endpoint::kChat) {
    out += R"({"content":[)";
    out += tokens_;
    out += "]}";
  } else {
    out += R"({"text_offset":[)";
    out += text_offset_;
    out += R"(],"token_logprobs":[)";
    out += token_logprobs_;
    out += R"(],"tokens":[)";
    out += tokens_;
    out += R"(],"top_logprobs":[)";
    out += top_logprobs_;
    out += "]}";
  }
  tokens_.clear();
  token_logprobs_.clear();
  top_logprobs_.clear();
  text_offset_.clear();
}

}  // namespace tandem::openai
