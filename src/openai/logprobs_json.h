// Log probabilities of generated tokens in OpenAI's two formats: lists side by side (completions),
// or one entry per token (chat). Threads: one owner at a time. Borrows the tokenizer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "openai/generation_request.h"
#include "request/request.h"
#include "text/tokenizer.h"

namespace tandem::openai {

// What of a GenerationRequest decides how log probabilities look.
struct LogprobsStyle {
  Endpoint endpoint = Endpoint::kCompletions;
  int32_t top = -1;  // how many alternatives; -1: no log probabilities at all
  bool tokens_as_ids = false;
};

// vLLM's "prompt_logprobs": for each token of the prompt an object from token ids to what is known
// of them, the token's own first, then the `top` most likely; null for the first token.
std::string prompt_logprobs_json(const text::Tokenizer& tokenizer, std::span<const TokenId> tokens,
                                 std::span<const LogprobInfo> infos, int32_t top);

// The "logprobs" object of one choice, or of one chunk of a choice. Copies of an empty one are
// cheap.
class LogprobsJson {
 public:
  LogprobsJson(const text::Tokenizer& tokenizer, LogprobsStyle style)
      : tokenizer_(tokenizer), style_(style) {}

  // `offset_chars`: where the token's text begins in the choice's text, in characters. A token that
  // continues a character has the offset of that character, and a token that is not shown the
  // offset of the next text.
  void add(TokenId token, const LogprobInfo& info, int64_t offset_chars);
  // The tokens of an echoed prompt, whose text is `text`; `infos` are of all but the first. Needs
  // the completions format. Returns the characters of `text`, at which the answer begins. Takes
  // time in proportion to the tokens and the text.
  int64_t add_prompt(std::span<const TokenId> tokens, std::span<const LogprobInfo> infos,
                     std::string_view text);
  // The object, or "null" when log probabilities are off. The entries of `before` stand in front of
  // this one's; it may be null.
  void append_to(std::string& out, const LogprobsJson* before) const;
  void clear();
  void release();  // like clear(), and frees the memory
  [[nodiscard]] bool wanted() const { return style_.top >= 0; }
  [[nodiscard]] size_t bytes() const;

 private:
  void append_token_string(std::string& out, TokenId token) const;
  void append_chat_token(std::string& out, TokenId token, float logprob) const;
  void add_top_of_completion(TokenId token, const LogprobInfo& info);

  const text::Tokenizer& tokenizer_;
  LogprobsStyle style_;
  std::string tokens_;  // chat: the entries; completions: the list of that name
  std::string token_logprobs_;
  std::string top_logprobs_;
  std::string text_offset_;
};

}  // namespace tandem::openai
