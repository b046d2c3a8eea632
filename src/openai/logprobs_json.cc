#include "openai/logprobs_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "openai/json_output.h"
#include "text/detokenizer.h"

namespace tandem::openai {

namespace {

void append_comma(std::string& out) {
  if (!out.empty()) {
    out += ',';
  }
}

// One pair of vLLM's "prompt_logprobs".
void append_scored_token(const text::Tokenizer& tokenizer, TokenId token, float logprob,
                         int32_t rank, std::string& out) {
  fmt::format_to(std::back_inserter(out), R"("{}":{{"logprob":)", token);
  append_logprob(out, logprob);
  out += R"(,"rank":)";
  append_integer(out, rank);
  out += R"(,"decoded_token":)";
  append_untrusted_string(out, tokenizer.token_bytes(token));
  out += '}';
}

}  // namespace

std::string prompt_logprobs_json(const text::Tokenizer& tokenizer, std::span<const TokenId> tokens,
                                 std::span<const LogprobInfo> infos, int32_t top) {
  CHECK(infos.size() + 1 == tokens.size(), "{} scores of {} tokens", infos.size(), tokens.size());
  std::string out = "[null";
  for (size_t i = 0; i < infos.size(); ++i) {
    const LogprobInfo& info = infos[i];
    const TokenId token = tokens[i + 1];
    out += ",{";
    append_scored_token(tokenizer, token, info.logprob, info.rank, out);
    const size_t shown = std::min(info.top.size(), static_cast<size_t>(top));
    for (size_t rank = 0; rank < shown; ++rank) {
      if (info.top[rank].token != token) {
        out += ',';
        append_scored_token(tokenizer, info.top[rank].token, info.top[rank].logprob,
                            static_cast<int32_t>(rank) + 1, out);
      }
    }
    out += '}';
  }
  return out + "]";
}

// A token that is part of a character: completions key their map of alternatives by these strings,
// so different bytes must stay different; chat has the bytes beside the string.
void LogprobsJson::append_token_string(std::string& out, TokenId token) const {
  if (style_.tokens_as_ids) {
    fmt::format_to(std::back_inserter(out), "\"token_id:{}\"", token);
    return;
  }
  const std::string_view bytes = tokenizer_.token_bytes(token);
  if (!find_invalid_utf8(bytes)) {
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

int64_t LogprobsJson::add_prompt(std::span<const TokenId> tokens,
                                 std::span<const LogprobInfo> infos, std::string_view text) {
  CHECK(infos.size() + 1 == tokens.size() && style_.endpoint == Endpoint::kCompletions,
        "{} scores of {} tokens", infos.size(), tokens.size());
  const int64_t text_chars = count_chars(text);
  text::CharacterJoiner joiner(tokenizer_.traits().invalid_bytes);
  size_t shown_bytes = 0;  // of `text`, by the tokens so far
  bool begun = false;
  for (size_t i = 0; i < tokens.size(); ++i) {
    // Special tokens put around a text, and spaces that it loses at its beginning, are not in it.
    std::string_view bytes = tokenizer_.token_bytes(tokens[i]);
    const size_t before = shown_bytes + joiner.held_text().size();
    const std::string_view rest = text.substr(std::min(before, text.size()));
    if (!begun && !rest.starts_with(bytes)) {
      const auto lost = static_cast<size_t>(tokenizer_.traits().stripped_leading_spaces);
      bytes.remove_prefix(std::min({lost, bytes.size(), bytes.find_first_not_of(' ')}));
    }
    if (tokenizer_.is_special(tokens[i]) && !rest.starts_with(bytes)) {
      bytes = {};
    }
    const int64_t offset_chars = std::min(joiner.offset_of(bytes), text_chars);
    if (i > 0) {
      add(tokens[i], infos[i - 1], offset_chars);
    } else {
      append_comma(tokens_);
      append_token_string(tokens_, tokens[i]);
      append_comma(token_logprobs_);
      token_logprobs_ += "null";
      append_comma(top_logprobs_);
      top_logprobs_ += "null";
      append_comma(text_offset_);
      append_integer(text_offset_, offset_chars);
    }
    shown_bytes += joiner.push(bytes).size();
    begun = begun || !bytes.empty();
  }
  return text_chars;
}

void LogprobsJson::append_to(std::string& out, const LogprobsJson* before) const {
  if (!wanted()) {
    out += "null";
    return;
  }
  const auto append_list = [&](std::string LogprobsJson::*list) {
    if (before != nullptr && !(before->*list).empty()) {
      out += before->*list;
      out += (this->*list).empty() ? "" : ",";
    }
    out += this->*list;
  };
  if (style_.endpoint == Endpoint::kChat) {
    out += R"({"content":[)";
    append_list(&LogprobsJson::tokens_);
    out += "]}";
    return;
  }
  out += R"({"text_offset":[)";
  append_list(&LogprobsJson::text_offset_);
  out += R"(],"token_logprobs":[)";
  append_list(&LogprobsJson::token_logprobs_);
  out += R"(],"tokens":[)";
  append_list(&LogprobsJson::tokens_);
  out += R"(],"top_logprobs":[)";
  append_list(&LogprobsJson::top_logprobs_);
  out += "]}";
}

void LogprobsJson::clear() {
  tokens_.clear();
  token_logprobs_.clear();
  top_logprobs_.clear();
  text_offset_.clear();
}

void LogprobsJson::release() {
  for (std::string* list : {&tokens_, &token_logprobs_, &top_logprobs_, &text_offset_}) {
    std::string().swap(*list);
  }
}

size_t LogprobsJson::bytes() const {
  return tokens_.size() + token_logprobs_.size() + top_logprobs_.size() + text_offset_.size();
}

}  // namespace tandem::openai
