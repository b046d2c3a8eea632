#include "base/log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "base/log_fields.h"
#include "base/log_levels.h"
#include "base/utf8.h"

namespace tandem::log {
namespace {

// Read by every thread, written by start().
std::atomic<bool> json_lines{false};
// The fields of the line that this thread logs at the moment; the logger formats it before the call
// returns.
thread_local const Fields* current_fields = nullptr;

// As a JSON string; bytes that are not UTF-8 become U+FFFD.
void append_quoted(std::string& out, std::string_view text) {
  std::string valid;
  append_repaired_utf8(text, Utf8Tail::kIsFinal, InvalidBytes::kOnePerByte, valid);
  out += '"';
  for (const char c : valid) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<uint8_t>(c) < 0x20 || c == 0x7F) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<uint8_t>(c));
    } else {
      out += c;
    }
  }
  out += '"';
}

void append_value(std::string& out, const Field& field) {
  if (const auto* text = std::get_if<std::string>(&field.value)) {
    append_quoted(out, *text);
  } else if (const auto* count = std::get_if<int64_t>(&field.value)) {
    fmt::format_to(std::back_inserter(out), "{}", *count);
  } else if (const auto* number = std::get_if<double>(&field.value)) {
    fmt::format_to(std::back_inserter(out), "{:.1f}", *number);
  } else {
    out += std::get<RawJson>(field.value).text;
  }
}

class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const auto since = message.time.time_since_epoch();
    const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(since).count() % 1000;
    std::string line = fmt::format(R"({{"time":"{:%Y-%m-%dT%H:%M:%S}.{:03}Z","level":"{}",)",
                                   fmt::gmtime(std::chrono::system_clock::to_time_t(message.time)),
                                   millis, spdlog::level::to_string_view(message.level));
    line += R"("message":)";
    append_quoted(line, {message.payload.data(), message.payload.size()});
    if (current_fields != nullptr) {
      for (const Field& field : *current_fields) {
        fmt::format_to(std::back_inserter(line), ",\"{}\":", field.name);
        append_value(line, field);
      }
    }
    line += "}\n";
    out.append(line.data(), line.data() + line.size());
  }
  [[nodiscard]] std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }
};

}  // namespace

Result<Format> parse_format(std::string_view name) {
  if (name == "text" || name == "json") {
    return name == "json" ? Format::kJson : Format::kText;
  }
  return invalid_argument(fmt::format("unknown log format '{}' (known: text, json)", name),
                          "log-format");
}

std::vector<std::string> level_names() {
  return {"trace", "debug", "info", "warning", "error", "off"};
}

Status check_level(std::string_view level) {
  if (spdlog::level::from_str(std::string(level)) == spdlog::level::off && level != "off") {
    return invalid_argument(
        fmt::format("unknown log level '{}' (known: {})", level, fmt::join(level_names(), ", ")),
        "log-level");
  }
  return {};
}

Status start(std::string_view level, Format format) {
  RETURN_IF_ERROR(check_level(level));
  const spdlog::level::level_enum parsed = spdlog::level::from_str(std::string(level));
  spdlog::drop("tandem");
  auto logger = spdlog::stderr_color_mt("tandem");
  if (format == Format::kJson) {
    logger->set_formatter(std::make_unique<JsonFormatter>());
  } else {
    logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
  }
  logger->set_level(parsed);
  json_lines = format == Format::kJson;
  spdlog::set_default_logger(std::move(logger));
  return {};
}

Status start(std::string_view level) { return start(level, Format::kText); }

bool is_json() { return json_lines; }

std::string text_of(const Fields& fields) {
  std::string text;
  for (const Field& field : fields) {
    fmt::format_to(std::back_inserter(text), " {}=", field.name);
    if (const auto* word = std::get_if<std::string>(&field.value)) {
      text += *word;
    } else {
      append_value(text, field);
    }
  }
  return text;
}

void info_fields(std::string_view message, const Fields& fields) {
  current_fields = &fields;
  info("{}", message);
  current_fields = nullptr;
}

}  // namespace tandem::log
