// The lines of a batch file: OpenAI's input format in, its output format out. Text to text: no
// files, no clock, no state. Lines are hostile; whatever is wrong with one becomes its error, never
// the run's. Threads: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "openai/generation_request.h"

namespace tandem::openai {

// One line of the input: {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions",
// "body": {...}}.
struct BatchLine {
  std::optional<std::string> custom_id;  // absent: it could not be read
  Endpoint endpoint = Endpoint::kChat;
  std::string body;  // JSON text, for parse_generation
  // Why the line is not a request; then only custom_id is set.
  std::optional<Error> error;
  std::string error_code;
};

[[nodiscard]] BatchLine parse_batch_line(std::string_view line, const JsonLimits& limits);

// Which input line an output line answers. The hash is of the input line's bytes, so that an output
// file is never continued with another input.
struct BatchLineId {
  int64_t number = 0;  // 1 is the first line of the file
  uint64_t hash = 0;
  bool operator==(const BatchLineId&) const = default;
};

inline constexpr uint64_t kHashOfNothing = 0xcbf29ce484222325U;
// A line that comes in pieces: each after the hash of those before it.
[[nodiscard]] uint64_t hash_of_line(std::string_view line, uint64_t before = kHashOfNothing);
// "batch_req_7_00c0ffee00c0ffee"
[[nodiscard]] std::string batch_request_id(const BatchLineId& id);
[[nodiscard]] std::optional<BatchLineId> parse_batch_request_id(std::string_view text);

// Output lines, with their line end. `body` is the JSON of a response or an error body.
[[nodiscard]] std::string answered_batch_line(const BatchLineId& id,
                                              const std::optional<std::string>& custom_id,
                                              int http_status, std::string_view body);
// For lines that were no requests: "response" is null.
[[nodiscard]] std::string failed_batch_line(const BatchLineId& id,
                                            const std::optional<std::string>& custom_id,
                                            std::string_view code, std::string_view message);

// What a continued run must know of an output line, whatever its answer's size. A caller's mistake
// where `line` was not written by answered_batch_line or failed_batch_line.
struct WrittenBatchLine {
  BatchLineId id;
  std::optional<std::string> custom_id;
  bool failed = false;     // status other than 200, or no response
  std::string error_code;  // of failed_batch_line
};
[[nodiscard]] Result<WrittenBatchLine> parse_written_batch_line(std::string_view line);

inline constexpr std::string_view kDuplicateCustomId = "duplicate_custom_id";
inline constexpr std::string_view kLineTooLong = "line_too_long";
inline constexpr std::string_view kAnswerTooLarge = "answer_too_large";

}  // namespace tandem::openai
