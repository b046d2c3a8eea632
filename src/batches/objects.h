// Files and batches as OpenAI's API has them. Plain data. Times are seconds since 1970.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::batches {

inline constexpr std::string_view kPurposeBatch = "batch";          // of uploads
inline constexpr std::string_view kPurposeOutput = "batch_output";  // of what batches write

struct FileObject {
  std::string id;
  std::string owner;  // see Service
  std::string filename;
  std::string purpose;
  int64_t bytes = 0;
  int64_t created_at = 0;
  std::optional<int64_t> expires_at;
};

enum class BatchState : uint8_t {
  kValidating,
  kInProgress,
  kFinalizing,
  kCompleted,
  kFailed,
  kExpired,
  kCancelling,
  kCancelled,
};
inline constexpr std::array<std::string_view, 8> kBatchStates = {
    "validating", "in_progress", "finalizing", "completed",
    "failed",     "expired",     "cancelling", "cancelled"};
constexpr std::string_view state_name(BatchState state) {
  return kBatchStates[static_cast<size_t>(state)];
}
[[nodiscard]] std::optional<BatchState> parse_state(std::string_view name);
// Nothing will happen to it any more.
[[nodiscard]] constexpr bool has_ended(BatchState state) {
  return state == BatchState::kCompleted || state == BatchState::kFailed ||
         state == BatchState::kExpired || state == BatchState::kCancelled;
}

// Why a batch failed before it began.
struct BatchFault {
  std::string code;
  std::string message;
  std::string param;            // empty: none
  std::optional<int64_t> line;  // 1 is the first of the file
  bool operator==(const BatchFault&) const = default;
};

struct LineCounts {
  int64_t total = 0;
  int64_t completed = 0;
  int64_t failed = 0;
  bool operator==(const LineCounts&) const = default;
};

struct BatchObject {
  std::string id;
  std::string owner;
  std::string endpoint;  // "/v1/chat/completions"
  std::string input_file_id;
  std::string completion_window;  // as it was asked for: "24h"
  std::vector<std::pair<std::string, std::string>> metadata;
  std::optional<int64_t> output_expires_after;  // seconds; of the files that it writes
  int64_t input_bytes = 0;
  int64_t created_at = 0;
  int64_t expires_at = 0;

  BatchState state = BatchState::kValidating;
  LineCounts counts;
  std::vector<BatchFault> faults;
  std::vector<std::string> models;  // names in its lines, and the models' own
  std::optional<std::string> output_file_id;
  std::optional<std::string> error_file_id;
  std::optional<int64_t> in_progress_at;
  std::optional<int64_t> finalizing_at;
  std::optional<int64_t> cancelling_at;
  std::optional<int64_t> ended_at;  // completed, failed, expired or cancelled
};

// What a running batch says of itself besides.
struct BatchOutlook {
  std::optional<int64_t> ends_at;  // at the rate of the last lines
  std::string paused;              // why it waits; empty: it does not
};

// For messages: what a client sent, in UTF-8, cut to 40 bytes.
[[nodiscard]] std::string shown(std::string_view text);
// The first whole characters of the text, at most `max` bytes; bytes that are no UTF-8 are
// replaced.
[[nodiscard]] std::string first_chars(std::string_view text, size_t max);

}  // namespace tandem::batches
