// A conversation with a server over /v1/chat/completions: what is sent, and what a streamed answer
// says. Reads no clock and no socket. Threads: one owner.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "loadgen/sse_parser.h"
#include "loadgen/stream_chunk.h"

namespace tandem::chat {

struct ConversationOptions {
  std::string model;          // empty: the server's first
  std::string service_class;  // latency_sensitive or best_effort; empty: the server's default
  std::string system;         // goes before the conversation; empty: none
  int32_t max_tokens = 0;     // of an answer; 0: the server's default
  std::optional<double> temperature;
};

class Conversation {
 public:
  explicit Conversation(ConversationOptions options);

  void ask(std::string text);       // what the user says
  void answered(std::string text);  // what the model said, whole or stopped
  void forget_question();           // the last one, which was not answered
  void restart();                   // only the system's words stay
  [[nodiscard]] std::string request_body() const;

 private:
  struct Message {
    const char* role;
    std::string text;
  };
  ConversationOptions options_;
  std::vector<Message> messages_;
};

// An answer as it comes.
class Answer {
 public:
  explicit Answer(Nanos sent) : sent_(sent) {}

  // Calls `on_text` with what is new of the model's words, as they came. An error of the stream or
  // of the server ends the answer.
  Status feed(std::string_view bytes, Nanos now,
              const std::function<void(std::string_view)>& on_text);

  // Without the model's reasoning, which is not part of the conversation.
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] bool has_begun() const { return pieces_ > 0; }
  [[nodiscard]] bool ended() const { return ended_; }  // the server said so
  // "first token after 120 ms, 45.1 tokens/s, 64 tokens, best_effort"; empty before the first.
  [[nodiscard]] std::string summary() const;

 private:
  Nanos sent_;
  Nanos first_{0};
  Nanos last_{0};
  int64_t pieces_ = 0;
  loadgen::SseParser parser_;
  std::string text_;
  std::string service_tier_;
  std::string finish_reason_;
  std::optional<loadgen::TokenUsage> usage_;
  bool reasons_ = false;  // the last piece was reasoning
  bool ended_ = false;
};

// The ids of a /v1/models answer.
Result<std::vector<std::string>> model_ids(std::string_view body);

}  // namespace tandem::chat
