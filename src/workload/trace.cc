#include "workload/trace.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <utility>

#include "workload/lengths.h"
#include "workload/number.h"
#include "workload/trace_rows.h"

namespace tandem::workload {

namespace {

constexpr std::pair<TraceFormat, std::string_view> kNames[] = {
    {TraceFormat::kAuto, "auto"},
    {TraceFormat::kTandem, "tandem"},
    {TraceFormat::kAzure, "azure"},
    {TraceFormat::kBurstGpt, "burstgpt"},
    {TraceFormat::kMooncake, "mooncake"}};

Error file_error(const std::string& path, std::string_view why) {
  return {ErrorCode::kIo, fmt::format("cannot read the trace '{}': {}", path, why), {}};
}

// zlib's reader gives the bytes of a file as they are when they are not gzip.
Result<std::string> read_file(const std::string& path, int64_t most_bytes) {
  std::error_code failure;
  if (!std::filesystem::is_regular_file(path, failure)) {
    return file_error(path, failure ? failure.message() : "it is not a file");
  }
  const std::unique_ptr<gzFile_s, decltype(&gzclose)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (file == nullptr) {
    return file_error(path, "it cannot be opened");
  }
  std::string text;
  std::vector<char> piece(size_t{1} << 18);
  while (true) {
    const int bytes = gzread(file.get(), piece.data(), static_cast<unsigned>(piece.size()));
    if (bytes < 0) {
      return file_error(path, "it is damaged (gzip)");
    }
    if (bytes == 0) {
      int status = Z_OK;
      (void)gzerror(file.get(), &status);
      if (status == Z_BUF_ERROR) {
        return file_error(path, "it ends in the middle (gzip)");
      }
      return text;
    }
    text.append(piece.data(), static_cast<size_t>(bytes));
    if (std::cmp_greater(text.size(), most_bytes)) {
      return file_error(path, fmt::format("it is longer than {} bytes; cut it", most_bytes));
    }
  }
}

bool has_column(std::string_view header, std::string_view name) {
  const std::vector<std::string_view> columns = split(header, ',');
  return std::ranges::find(columns, name) != columns.end();
}

Result<TraceFormat> detect(std::string_view header, const Place& place) {
  if (header.starts_with('{')) {
    return TraceFormat::kMooncake;
  }
  if (has_column(header, "input_tokens") && has_column(header, "output_tokens")) {
    return TraceFormat::kTandem;
  }
  if (has_column(header, "ContextTokens")) {
    return TraceFormat::kAzure;
  }
  if (has_column(header, "Request tokens")) {
    return TraceFormat::kBurstGpt;
  }
  return trace_error(
      place,
      fmt::format("'{}' is not the header of a known format; it needs the columns input_tokens "
                  "and output_tokens (tandem), ContextTokens (azure), Request tokens "
                  "(burstgpt), or JSON lines (mooncake)",
                  shown(header)));
}

void start_at_zero(std::vector<TraceRow>& rows) {
  std::ranges::stable_sort(rows, {}, &TraceRow::at);
  const Nanos first = rows.front().at;
  for (TraceRow& row : rows) {
    row.at -= first;
  }
}

}  // namespace

Result<TraceFormat> parse_trace_format(std::string_view name) {
  for (const auto& [format, known] : kNames) {
    if (name == known) {
      return format;
    }
  }
  return invalid_argument(
      fmt::format("'{}' is not a trace format: auto, tandem, azure, burstgpt or mooncake", name),
      "trace-format");
}

std::string_view format_name(TraceFormat format) {
  return std::ranges::find(kNames, format, &std::pair<TraceFormat, std::string_view>::first)
      ->second;
}

bool Lines::next(std::string_view& line) {
  if (rest_.empty()) {
    return false;
  }
  const size_t end = rest_.find('\n');
  line = rest_.substr(0, end);
  rest_.remove_prefix(end == rest_.npos ? rest_.size() : end + 1);
  if (line.ends_with('\r')) {
    line.remove_suffix(1);
  }
  ++number_;
  return true;
}

Error trace_error(const Place& place, std::string_view message) {
  return invalid_argument(fmt::format("trace '{}', line {}: {}", place.file, place.line, message));
}

std::string shown(std::string_view field) {
  constexpr size_t kMost = 40;
  std::string text(field.substr(0, kMost));
  std::ranges::replace_if(
      text, [](char c) { return c < ' ' || c > '~'; }, '?');
  return field.size() > kMost ? text + "..." : text;
}

Result<int32_t> read_tokens(std::string_view field, std::string_view name, const Place& place) {
  const std::optional<int64_t> tokens = read_integer(field);
  if (!tokens || *tokens < 0 || *tokens > kMostTokens) {
    return trace_error(place, fmt::format("{} is '{}', not a whole number up to {}", name,
                                          shown(field), kMostTokens));
  }
  return static_cast<int32_t>(*tokens);
}

Nanos nanos_of(double seconds) { return Nanos(std::llround(seconds * 1e9)); }

Result<Nanos> read_seconds(std::string_view field, std::string_view name, const Place& place) {
  const std::optional<double> seconds = read_number(field);
  if (!seconds || *seconds < 0 || *seconds > kLongestTrace_s) {
    return trace_error(place, fmt::format("{} is '{}', not a time from 0 to {} seconds", name,
                                          shown(field), kLongestTrace_s));
  }
  return nanos_of(*seconds);
}

Status check_hash_ids(const TraceRow& row, int32_t block_tokens, const Place& place) {
  const int64_t blocks = (int64_t{row.input_tokens} + block_tokens - 1) / block_tokens;
  if (std::ssize(row.hash_ids) != blocks) {
    return trace_error(place,
                       fmt::format("{} hash_ids, but {} input tokens are {} blocks of {} "
                                   "(--trace-block-size)",
                                   row.hash_ids.size(), row.input_tokens, blocks, block_tokens));
  }
  return {};
}

Result<Trace> parse_trace(std::string_view text, std::string_view name,
                          const TraceOptions& options) {
  if (text.starts_with("\xef\xbb\xbf")) {
    text.remove_prefix(3);
  }
  Lines lines(text);
  std::string_view header;
  if (!lines.next(header)) {
    return trace_error({name, 1}, "the file is empty");
  }
  Trace trace;
  trace.format = options.format;
  if (trace.format == TraceFormat::kAuto) {
    ASSIGN_OR_RETURN(trace.format, detect(header, {name, 1}));
  }
  switch (trace.format) {
    case TraceFormat::kAzure:
      RETURN_IF_ERROR(read_azure_csv(text, name, trace));
      break;
    case TraceFormat::kBurstGpt:
      RETURN_IF_ERROR(read_burstgpt_csv(text, name, trace));
      break;
    case TraceFormat::kMooncake:
      RETURN_IF_ERROR(read_mooncake(text, name, options.block_tokens, trace));
      break;
    default:
      RETURN_IF_ERROR(read_tandem_csv(text, name, options.block_tokens, trace));
  }
  if (trace.rows.empty()) {
    return trace_error({name, 1}, "no row has a prompt and an answer");
  }
  if (trace.format != TraceFormat::kTandem) {
    start_at_zero(trace.rows);
  }
  return trace;
}

Result<Trace> read_trace(const std::string& path, const TraceOptions& options) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, options.most_bytes));
  return parse_trace(text, std::filesystem::path(path).filename().string(), options);
}

}  // namespace tandem::workload
