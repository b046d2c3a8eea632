// One answer in the making: takes the engine's events of a request body's prompts and gives the
// response, whole or as server-sent events. Detokenizes, cuts stop strings, counts. Not here:
// sockets, submitting, cancelling. Streamed: one chunk per token (empty text while characters or
// stop strings are held back), so that clients which time chunks measure tokens; the token that
// ends a choice and its finish_reason share a chunk where they come together. Tokens that arrive
// after a stop string was found are dropped: neither sent nor counted. Threads: one owner at a
// time. Borrows the tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "openai/generation_request.h"
#include "openai/logprobs_json.h"
#include "request/request.h"
#include "text/detokenizer.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"

namespace tandem::openai {

struct AnswerIdentity {
  std::string id;  // "cmpl-..." or "chatcmpl-..."
  int64_t created_unix_seconds = 0;
};

struct Usage {
  int64_t prompt_tokens = 0;  // each prompt counts once, whatever n is
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
};

class Generation {
 public:
  Generation(const GenerationRequest& request, AnswerIdentity identity,
             const text::Tokenizer& tokenizer);

  // Takes events of prompt number `prompt`, oldest first, and appends streamed chunks to `out`, up
  // to and including "data: [DONE]" once the last choice has ended. Returns the choices of this
  // prompt in which a stop string was found: the caller tells the Frontend to stop them.
  [[nodiscard]] std::vector<int32_t> take(size_t prompt, std::span<TokenEvent> events,
                                          std::string& out);

  // About how many bytes of JSON a take() of these events writes for the prompt (its text, its
  // log-probabilities); 0: what tokens bring is not counted. For callers that must not be held up.
  [[nodiscard]] size_t prompt_bytes_of(size_t prompt, std::span<const TokenEvent> events) const;
  // Bytes of text and log-probabilities kept for body(). Takes no time.
  [[nodiscard]] int64_t kept_bytes() const { return kept_bytes_; }
  // About how many bytes body() has.
  [[nodiscard]] size_t body_bytes() const;
  // The same and the prompts that are kept: about how many bytes a destructor frees.
  [[nodiscard]] size_t held_bytes() const;

  [[nodiscard]] bool streams() const { return streams_; }
  // Every choice has ended, or one has failed: further events are ignored.
  [[nodiscard]] bool ended() const { return error_.has_value() || open_choices_ == 0; }
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }
  [[nodiscard]] Usage usage() const;
  // The whole response. Needs ended() without error() and !streams().
  [[nodiscard]] std::string body();

 private:
  struct Choice {
    text::IncrementalDetokenizer detokenizer;
    text::StopStringCutter cutter;
    LogprobsJson logprobs;
    std::string text;           // whole responses only; without the echoed prompt
    int64_t echo_chars = 0;     // characters of the echoed prompt, for text_offset
    int32_t tokens = 0;         // sent and billed
    int32_t cached_tokens = 0;  // known once it has ended
    bool role_sent = false;
    bool echo_sent = false;
    bool finished = false;  // its finish_reason is known; nothing more is sent
    bool ended = false;     // its kFinish arrived
    FinishReason reason = FinishReason::kStop;
    std::string stop_reason;                // JSON: null, a string or a token id
    std::unique_ptr<ServiceReport> report;  // when asked, once it has ended
  };

  // What the choices of a prompt have in common.
  struct Prompt {
    int64_t tokens = 0;
    std::string echo;               // with echo: its text
    LogprobsJson echo_logprobs;     // with echo: of its tokens, once they are known
    std::vector<TokenId> scored;    // its tokens, when their log-probabilities come
    std::string logprobs = "null";  // "prompt_logprobs" of its choices
  };

  // What a step adds to a choice.
  struct Piece {
    std::string text;
    bool finishes = false;
  };

  void take_prompt(size_t prompt, const TokenEvent& event, std::string& out);
  bool take_token(Choice& choice, TokenEvent& event, Piece& piece);
  void take_finish(Choice& choice, FinishInfo& finish, Piece& piece);
  void emit(size_t index, const Piece& piece, std::string& out);
  void append_echo_chunk(size_t index, std::string& out);
  void append_role_chunk(size_t index, std::string& out) const;
  void append_choice_end(Choice& choice, const LogprobsJson* before, std::string& out) const;
  void append_chunk_usage(size_t index, int32_t completion_tokens, std::string& out) const;
  void append_last_chunks(std::string& out) const;
  void append_final_usage(std::string& out) const;
  void append_explanation(std::string& out) const;
  void fail(Error error, std::string& out);

  Endpoint endpoint_;
  bool streams_;
  bool include_stop_;
  StreamUsage stream_usage_;
  size_t n_;
  std::vector<TokenId> stop_token_ids_;
  std::string head_;  // the JSON of a response or chunk up to and including "choices":[
  std::string tail_;  // what ends it, after "usage"
  std::vector<std::string> stop_strings_;
  const text::Tokenizer& tokenizer_;
  bool echoes_;
  int32_t prompt_logprobs_;  // see GenerationRequest
  int32_t min_tokens_;       // so many tokens are not looked at for stop strings
  bool discard_output_;
  bool explain_;
  bool honoured_;  // see GenerationRequest
  std::vector<Prompt> prompts_;
  std::vector<Choice> choices_;  // prompt * n + choice
  size_t open_choices_;
  int64_t kept_bytes_ = 0;
  std::optional<Error> error_;
};

}  // namespace tandem::openai
