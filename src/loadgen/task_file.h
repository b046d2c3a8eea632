// Questions whose answers a program can judge, read from JSON lines (docs/default-model.md has the
// fields), so that a run also says whether what came back was right. Threads: any.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "loadgen/answer_pattern.h"

namespace tandem::loadgen {

// One of these texts.
struct ExpectedText {
  std::vector<std::string> texts;
};
// This number alone, or as the result of an equation: "12", "5 + 7 = 12".
struct ExpectedNumber {
  int64_t value = 0;
};
struct AnswerTask {
  std::string id;
  std::string ability;      // accuracy is reported by it
  nlohmann::json messages;  // of /v1/chat/completions
  std::variant<ExpectedText, ExpectedNumber, AnswerPattern> expected;
};

// Answers of the tasks in such files are this long at most.
inline constexpr int32_t kMostTaskAnswerTokens = 160;

// At least one task. Hostile input is an error that names file, line and field.
Result<std::vector<AnswerTask>> read_tasks(const std::string& path);
// Error messages begin with `name`.
Result<std::vector<AnswerTask>> parse_tasks(std::string_view text, std::string_view name);

// White space at both ends of an answer does not count.
bool is_right(const AnswerTask& task, std::string_view answer);

}  // namespace tandem::loadgen
