// Recorded workloads: when requests came and how long they were. Reads four formats, told apart by
// their first line:
//   tandem    CSV with input_tokens, output_tokens and optionally arrival_s, model_id, hash_ids
//   azure     CSV of Azure's LLM inference traces: TIMESTAMP, ContextTokens, GeneratedTokens
//   burstgpt  CSV of BurstGPT: Timestamp, Model, Request tokens, Response tokens, ...
//   mooncake  a JSON object a line: timestamp (ms), input_length, output_length, hash_ids
// Columns and fields are found by name; gzip is seen by its first bytes. Hostile input is an error
// that names file, line and field. Times start at 0: those of the foreign formats are shifted and
// sorted. Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace tandem::workload {

enum class TraceFormat : uint8_t { kAuto, kTandem, kAzure, kBurstGpt, kMooncake };

Result<TraceFormat> parse_trace_format(std::string_view name);
std::string_view format_name(TraceFormat format);

struct TraceRow {
  Nanos at{0};
  int32_t input_tokens = 0;
  int32_t output_tokens = 0;
  int32_t model = 0;              // index of the model
  std::vector<int64_t> hash_ids;  // one for each block of the prompt, the last one partial; or none
};

struct Trace {
  TraceFormat format = TraceFormat::kAuto;  // never kAuto once read
  std::vector<TraceRow> rows;               // by time; at least one
  bool has_times = true;                    // false: lengths only, every `at` is 0
  int32_t models = 1;                       // indices are below this
  // Rows of the foreign formats without prompt or answer, left out: requests that failed there.
  int64_t skipped_rows = 0;
};

struct TraceOptions {
  TraceFormat format = TraceFormat::kAuto;
  int32_t block_tokens = 512;             // of one hash id
  int64_t most_bytes = int64_t{1} << 30;  // of the text, unpacked
};

Result<Trace> read_trace(const std::string& path, const TraceOptions& options);

// `name` stands in error messages.
Result<Trace> parse_trace(std::string_view text, std::string_view name,
                          const TraceOptions& options);

}  // namespace tandem::workload
