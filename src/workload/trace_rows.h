// What the readers of trace formats share: lines, places in messages, checked numbers.
// Threads: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "workload/trace.h"

namespace tandem::workload {

inline constexpr double kLongestTrace_s = 1e9;
inline constexpr int32_t kMostModels = 1'000'000;

// The lines of a text, counted from 1, without their line ends.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}
  // False at the end of the text.
  bool next(std::string_view& line);
  [[nodiscard]] int64_t number() const { return number_; }

 private:
  std::string_view rest_;
  int64_t number_ = 0;
};

struct Place {
  std::string_view file;
  int64_t line = 0;
};

Error trace_error(const Place& place, std::string_view message);

// At most a few dozen characters of a hostile field, printable.
std::string shown(std::string_view field);

Result<int32_t> read_tokens(std::string_view field, std::string_view name, const Place& place);
Result<Nanos> read_seconds(std::string_view field, std::string_view name, const Place& place);
Nanos nanos_of(double seconds);

// The ids must be as many as the blocks of the prompt.
Status check_hash_ids(const TraceRow& row, int32_t block_tokens, const Place& place);

// `text` starts with the header line.
Status read_tandem_csv(std::string_view text, std::string_view file, int32_t block_tokens,
                       Trace& trace);
Status read_azure_csv(std::string_view text, std::string_view file, Trace& trace);
Status read_burstgpt_csv(std::string_view text, std::string_view file, Trace& trace);
Status read_mooncake(std::string_view text, std::string_view file, int32_t block_tokens,
                     Trace& trace);

}  // namespace tandem::workload
