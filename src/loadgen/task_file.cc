#include "loadgen/task_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>

#include "base/json_values.h"

namespace tandem::loadgen {

namespace {

using nlohmann::json;

constexpr int kVersion = 1;
constexpr std::streamoff kMostFileBytes = std::streamoff{256} << 20;

std::string_view without_white_space(std::string_view text) {
  constexpr std::string_view kWhite = " \t\n\v\f\r";
  const size_t begin = text.find_first_not_of(kWhite);
  return begin == text.npos ? std::string_view()
                            : text.substr(begin, text.find_last_not_of(kWhite) + 1 - begin);
}

bool is_number(std::string_view answer, int64_t expected) {
  const size_t equals = answer.find('=');
  if (equals != answer.npos) {
    if (answer.substr(0, equals).find_first_not_of("-+0123456789 ") != answer.npos) {
      return false;
    }
    answer.remove_prefix(equals + 1);
    if (answer.starts_with(' ')) {
      answer.remove_prefix(1);
    }
  }
  int64_t value = 0;
  const char* const end = answer.data() + answer.size();
  const std::from_chars_result read = std::from_chars(answer.data(), end, value);
  const std::string_view rest(read.ptr, static_cast<size_t>(end - read.ptr));
  return read.ec == std::errc() && value == expected && (rest.empty() || rest == ".");
}

Result<std::string> text_of(const json& line, const char* field) {
  const json* value = json_member(line, field);
  std::optional<std::string> text = value == nullptr ? std::nullopt : json_string(*value);
  if (!text) {
    return invalid_argument(fmt::format("'{}' is not a text", field), field);
  }
  return *std::move(text);
}

Status check_messages(const json& line) {
  const json* messages = json_member(line, "messages");
  const auto is_message = [](const json& message) {
    const json* role = json_member(message, "role");
    return role != nullptr && role->is_string() && message.contains("content");
  };
  if (messages == nullptr || !messages->is_array() || messages->empty() ||
      !std::ranges::all_of(*messages, is_message)) {
    return invalid_argument("'messages' is not a list of messages with role and content",
                            "messages");
  }
  return {};
}

Result<decltype(AnswerTask::expected)> read_expected(const json& line) {
  ASSIGN_OR_RETURN(const std::string checker, text_of(line, "checker"));
  const json expected = line.value("expected", json());
  if (checker == "exact" && expected.is_string()) {
    return {ExpectedText{{expected.get<std::string>()}}};
  }
  if (checker == "any_of" && expected.is_array() && !expected.empty() &&
      std::ranges::all_of(expected, &json::is_string)) {
    return {ExpectedText{expected.get<std::vector<std::string>>()}};
  }
  if (const std::optional<int64_t> number = json_integer(expected); checker == "number" && number) {
    return {ExpectedNumber{*number}};
  }
  if (checker == "pattern" && expected.is_string()) {
    ASSIGN_OR_RETURN(AnswerPattern pattern, AnswerPattern::parse(expected.get<std::string>()));
    return {std::move(pattern)};
  }
  if (checker != "exact" && checker != "any_of" && checker != "number" && checker != "pattern") {
    return invalid_argument(
        fmt::format("'checker' is '{}', not exact, any_of, number or pattern", checker), "checker");
  }
  return invalid_argument(
      fmt::format("'expected' is not what the checker '{}' compares with", checker), "expected");
}

Result<AnswerTask> read_task(std::string_view text) {
  const json line = json::parse(text, nullptr, false);
  if (!line.is_object()) {
    return invalid_argument("not a JSON object", "line");
  }
  const json* version = json_member(line, "version");
  if (version == nullptr || json_integer(*version) != kVersion) {
    return invalid_argument(fmt::format("'version' is not {}", kVersion), "version");
  }
  AnswerTask task;
  ASSIGN_OR_RETURN(task.id, text_of(line, "id"));
  ASSIGN_OR_RETURN(task.ability, text_of(line, "task"));
  RETURN_IF_ERROR(check_messages(line));
  task.messages = line["messages"];
  ASSIGN_OR_RETURN(task.expected, read_expected(line));
  return task;
}

}  // namespace

Result<std::vector<AnswerTask>> parse_tasks(std::string_view text, std::string_view name) {
  std::vector<AnswerTask> tasks;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = without_white_space(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) {
      continue;
    }
    Result<AnswerTask> task = read_task(line);
    if (!task.ok()) {
      return invalid_argument(fmt::format("{}:{}: {}", name, number, task.error().message),
                              "tasks");
    }
    tasks.push_back(std::move(*task));
  }
  if (tasks.empty()) {
    return invalid_argument(fmt::format("{}: has no task", name), "tasks");
  }
  return tasks;
}

Result<std::vector<AnswerTask>> read_tasks(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff bytes = file.tellg();
  if (!file || bytes > kMostFileBytes) {
    return invalid_argument(
        fmt::format("tasks: cannot read '{}': {}", path,
                    file ? "it is larger than 256 MiB" : "no such file, or no right to read it"),
        "tasks");
  }
  std::string text(static_cast<size_t>(bytes), '\0');
  file.seekg(0);
  file.read(text.data(), bytes);
  if (!file) {
    return invalid_argument(fmt::format("tasks: cannot read '{}'", path), "tasks");
  }
  return parse_tasks(text, path);
}

bool is_right(const AnswerTask& task, std::string_view answer) {
  answer = without_white_space(answer);
  if (const auto* number = std::get_if<ExpectedNumber>(&task.expected)) {
    return is_number(answer, number->value);
  }
  if (const auto* pattern = std::get_if<AnswerPattern>(&task.expected)) {
    return pattern->matches(answer);
  }
  const auto& texts = std::get<ExpectedText>(task.expected).texts;
  return std::ranges::any_of(
      texts, [answer](const std::string& text) { return without_white_space(text) == answer; });
}

}  // namespace tandem::loadgen
