// What happened to one request. Times are since the start of the run, by the generator's clock.
// Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "loadgen/stream_chunk.h"

namespace tandem::loadgen {

struct AnswerTask;

enum class Outcome : uint8_t {
  kNotSent,  // the run ended before its turn
  kDone,
  kFailed,       // `reason` says how
  kInterrupted,  // the run ended while it was under way: neither done nor failed
};

struct RequestRecord {
  // The plan.
  int32_t group = 0;  // index of the class of requests it belongs to
  int32_t model = 0;  // index into all models of the run
  int32_t planned_input_tokens = 0;
  int32_t planned_output_tokens = 0;
  Nanos planned_at{0};
  const AnswerTask* task = nullptr;  // of the load: what was asked; null: no answer is judged

  // What came of it; each valid once the one before it happened.
  Nanos due_at{0};   // when it could be sent: planned, or when --max-concurrency let it
  Nanos sent_at{0};  // when its bytes (or its connection) were asked for
  std::vector<Nanos> chunk_times;  // when chunks with a token came
  std::optional<Nanos> finish_at;  // when the chunk with finish_reason came
  Nanos ended_at{0};
  Outcome outcome = Outcome::kNotSent;
  int32_t status = 0;   // of HTTP, 0: none came
  std::string reason;   // kFailed: one word, e.g. http_429; to count by
  std::string message;  // kFailed: what the server or the system said
  std::string finish_reason;
  std::string service_tier;  // the one that was used, where the server names it
  std::optional<TokenUsage> usage;
  std::string answer;  // with a task: what came

  // Where the server does not count, chunks are taken for tokens.
  [[nodiscard]] int64_t output_tokens() const {
    return usage && usage->completion_tokens > 0 ? usage->completion_tokens
                                                 : static_cast<int64_t>(chunk_times.size());
  }
  [[nodiscard]] int64_t input_tokens() const {
    return usage ? usage->prompt_tokens : planned_input_tokens;
  }
  [[nodiscard]] Nanos ttft() const { return chunk_times.front() - sent_at; }  // needs a chunk
  // Needs a chunk.
  [[nodiscard]] Nanos e2el() const { return finish_at.value_or(chunk_times.back()) - sent_at; }
  // Per token after the first; nullopt when there was one token only.
  [[nodiscard]] std::optional<Nanos> tpot() const {
    return output_tokens() > 1 && chunk_times.size() > 1
               ? std::optional((chunk_times.back() - chunk_times.front()) / (output_tokens() - 1))
               : std::nullopt;
  }
  // To be called when the stream has ended: counts the closing chunk as one with a token where the
  // server counted more tokens than it sent chunks. vLLM sends the end token that way: in its
  // completion_tokens, without text. Servers that do not count it send no token there.
  void count_closing_chunk() {
    if (finish_at && usage && usage->completion_tokens > std::ssize(chunk_times) &&
        (chunk_times.empty() || chunk_times.back() < *finish_at)) {
      chunk_times.push_back(*finish_at);
    }
  }
  [[nodiscard]] Nanos lateness() const { return sent_at - due_at; }
  [[nodiscard]] Nanos client_wait() const { return due_at - planned_at; }
};

}  // namespace tandem::loadgen
