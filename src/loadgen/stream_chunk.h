// One event of an OpenAI stream (completions or chat): what a load generator wants to know of it.
// Threads: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem::loadgen {

// Counts that no answer can have are 0: sums of a run stay within their type.
struct TokenUsage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt, where the server says so
  // Of a server that explains (usage.tandem): whether the targets were kept by its own clock, and
  // when the first token came by it.
  std::optional<bool> slo_met;
  std::optional<double> engine_ttft_ms;
};

struct StreamChunk {
  bool is_end = false;    // "[DONE]"
  bool has_text = false;  // a reader sees something new
  std::string
      text;  // what is new, as it came: of an answer's or a chat's content, or its reasoning
  bool is_reasoning = false;  // `text` is the model's reasoning, not its answer
  // A chunk that brings a token a reader does not see yet: part of a character, or an empty one.
  // The opening chunk of a chat (role alone) brings none, and the closing one (finish_reason alone)
  // only where the server counts its end token: RequestRecord::count_closing_chunk.
  bool has_token = false;
  std::string finish_reason;
  std::string service_tier;  // the one that was used, where the server names it
  std::string error;         // the server's message: the request has failed
  std::optional<TokenUsage> usage;
};

// An error when `data` is no such event.
Result<StreamChunk> read_chunk(std::string_view data);

// The "message" of an OpenAI error body; the body's beginning when it is none. Valid UTF-8 without
// control characters.
std::string error_message(std::string_view body);
// "usage" of a whole answer.
std::optional<TokenUsage> read_usage(std::string_view body);

}  // namespace tandem::loadgen
