// The three formats of comma-separated values. None of them quotes fields.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <map>

#include "workload/number.h"
#include "workload/trace_rows.h"

namespace tandem::workload {

namespace {

// Rows of fields, found by their column's name.
class CsvReader {
 public:
  CsvReader(std::string_view text, std::string_view file) : lines_(text), file_(file) {
    std::string_view header;
    lines_.next(header);
    columns_ = split(header, ',');
  }

  // Remembers where the columns stand. A missing or doubled one is an error.
  Status need(std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) {
      const auto count = std::ranges::count(columns_, name);
      if (count != 1) {
        return trace_error(place(),
                           fmt::format("the header has {} columns '{}', not one", count, name));
      }
    }
    return {};
  }
  [[nodiscard]] bool has(std::string_view name) const {
    return std::ranges::count(columns_, name) > 0;
  }

  // False at the end. Empty lines are passed over.
  Result<bool> next() {
    std::string_view line;
    do {
      if (!lines_.next(line)) {
        return false;
      }
    } while (line.empty());
    fields_ = split(line, ',');
    if (fields_.size() != columns_.size()) {
      return trace_error(place(), fmt::format("{} fields, but the header has {}", fields_.size(),
                                              columns_.size()));
    }
    return true;
  }

  // Needs a column that need() or has() has found.
  [[nodiscard]] std::string_view field(std::string_view name) const {
    return fields_[static_cast<size_t>(std::ranges::find(columns_, name) - columns_.begin())];
  }
  Result<int32_t> tokens(std::string_view name) const {
    return read_tokens(field(name), name, place());
  }
  [[nodiscard]] Place place() const { return {file_, lines_.number()}; }

 private:
  Lines lines_;
  std::string_view file_;
  std::vector<std::string_view> columns_;
  std::vector<std::string_view> fields_;
};

Status read_hash_ids(std::string_view field, const Place& place, TraceRow& row) {
  for (const std::string_view id : split(field, ' ')) {
    const std::optional<int64_t> value = read_integer(id);
    if (!value || *value < 0) {
      return trace_error(place, fmt::format("'{}' in hash_ids is not a whole number", shown(id)));
    }
    row.hash_ids.push_back(*value);
  }
  return {};
}

// "2023-11-16 18:15:46.6805900", a zone behind it or not; T may stand between date and time. Leap
// seconds do not occur. Zones are left out: a file has one.
std::optional<Nanos> read_timestamp(std::string_view text) {
  if (text.size() < 19 || text[4] != '-' || text[7] != '-' ||
      (text[10] != ' ' && text[10] != 'T') || text[13] != ':' || text[16] != ':') {
    return std::nullopt;
  }
  const auto number = [text](size_t at, size_t digits) {
    const std::string_view part = text.substr(at, digits);
    return std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; })
               ? read_integer(part).value_or(-1)
               : -1;
  };
  const std::chrono::year_month_day date(std::chrono::year(static_cast<int>(number(0, 4))),
                                         std::chrono::month(static_cast<unsigned>(number(5, 2))),
                                         std::chrono::day(static_cast<unsigned>(number(8, 2))));
  const int64_t hours = number(11, 2);
  const int64_t minutes = number(14, 2);
  const int64_t seconds = number(17, 2);
  if (!date.ok() || date.year() < std::chrono::year(1970) ||
      date.year() > std::chrono::year(2200) || hours < 0 || hours > 23 || minutes < 0 ||
      minutes > 59 || seconds < 0 || seconds > 59) {
    return std::nullopt;
  }
  std::string_view rest = text.substr(19);
  int64_t fraction_ns = 0;
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    int64_t unit_ns = 100'000'000;
    while (!rest.empty() && rest.front() >= '0' && rest.front() <= '9') {
      fraction_ns += unit_ns * (rest.front() - '0');
      unit_ns /= 10;
      rest.remove_prefix(1);
    }
  }
  if (!rest.empty() && rest.front() != '+' && rest.front() != '-' && rest.front() != 'Z') {
    return std::nullopt;
  }
  return std::chrono::sys_days(date).time_since_epoch() + std::chrono::hours(hours) +
         std::chrono::minutes(minutes) + std::chrono::seconds(seconds) + Nanos(fraction_ns);
}

// Leaves rows without prompt or answer out, counted.
void keep(TraceRow row, Trace& trace) {
  if (row.input_tokens == 0 || row.output_tokens == 0) {
    ++trace.skipped_rows;
  } else {
    trace.rows.push_back(std::move(row));
  }
}

}  // namespace

Status read_tandem_csv(std::string_view text, std::string_view file, int32_t block_tokens,
                       Trace& trace) {
  CsvReader csv(text, file);
  RETURN_IF_ERROR(csv.need({"input_tokens", "output_tokens"}));
  trace.has_times = csv.has("arrival_s");
  const bool has_models = csv.has("model_id");
  const bool has_hashes = csv.has("hash_ids");
  while (true) {
    ASSIGN_OR_RETURN(const bool more, csv.next());
    if (!more) {
      return {};
    }
    TraceRow row;
    ASSIGN_OR_RETURN(row.input_tokens, csv.tokens("input_tokens"));
    ASSIGN_OR_RETURN(row.output_tokens, csv.tokens("output_tokens"));
    if (row.input_tokens < 1 || row.output_tokens < 1) {
      return trace_error(csv.place(), "input_tokens and output_tokens must be at least 1");
    }
    if (trace.has_times) {
      ASSIGN_OR_RETURN(row.at, read_seconds(csv.field("arrival_s"), "arrival_s", csv.place()));
      if (!trace.rows.empty() && row.at < trace.rows.back().at) {
        return trace_error(csv.place(),
                           "arrival_s is smaller than in the row before; sort the "
                           "file");
      }
    }
    if (has_models) {
      const std::optional<int64_t> model = read_integer(csv.field("model_id"));
      if (!model || *model < 0 || *model >= kMostModels) {
        return trace_error(csv.place(), fmt::format("model_id is '{}', not a whole number below {}",
                                                    shown(csv.field("model_id")), kMostModels));
      }
      row.model = static_cast<int32_t>(*model);
      trace.models = std::max(trace.models, row.model + 1);
    }
    if (has_hashes) {
      RETURN_IF_ERROR(read_hash_ids(csv.field("hash_ids"), csv.place(), row));
      RETURN_IF_ERROR(check_hash_ids(row, block_tokens, csv.place()));
    }
    trace.rows.push_back(std::move(row));
  }
}

Status read_azure_csv(std::string_view text, std::string_view file, Trace& trace) {
  CsvReader csv(text, file);
  RETURN_IF_ERROR(csv.need({"TIMESTAMP", "ContextTokens", "GeneratedTokens"}));
  while (true) {
    ASSIGN_OR_RETURN(const bool more, csv.next());
    if (!more) {
      return {};
    }
    TraceRow row;
    const std::optional<Nanos> at = read_timestamp(csv.field("TIMESTAMP"));
    if (!at) {
      return trace_error(csv.place(), fmt::format("TIMESTAMP is '{}', not like "
                                                  "2023-11-16 18:15:46.6805900",
                                                  shown(csv.field("TIMESTAMP"))));
    }
    row.at = *at;
    ASSIGN_OR_RETURN(row.input_tokens, csv.tokens("ContextTokens"));
    ASSIGN_OR_RETURN(row.output_tokens, csv.tokens("GeneratedTokens"));
    keep(std::move(row), trace);
  }
}

Status read_burstgpt_csv(std::string_view text, std::string_view file, Trace& trace) {
  CsvReader csv(text, file);
  RETURN_IF_ERROR(csv.need({"Timestamp", "Model", "Request tokens", "Response tokens"}));
  std::map<std::string_view, int32_t> models;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, csv.next());
    if (!more) {
      return {};
    }
    TraceRow row;
    ASSIGN_OR_RETURN(row.at, read_seconds(csv.field("Timestamp"), "Timestamp", csv.place()));
    ASSIGN_OR_RETURN(row.input_tokens, csv.tokens("Request tokens"));
    ASSIGN_OR_RETURN(row.output_tokens, csv.tokens("Response tokens"));
    row.model = models.emplace(csv.field("Model"), std::ssize(models)).first->second;
    trace.models = static_cast<int32_t>(models.size());
    if (trace.models > kMostModels) {
      return trace_error(csv.place(), fmt::format("more than {} models", kMostModels));
    }
    keep(std::move(row), trace);
  }
}

}  // namespace tandem::workload
