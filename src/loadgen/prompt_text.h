// Text of an exact number of tokens, for a tokenizer that is only known by its counts. A prompt is
// made of units (short words), each of which the server was seen to count as one token; the same
// seed gives the same units, so equal parts of a plan are equal text. All prompts begin with the
// same unit, because some tokenizers cut the first word of a text into pieces, each word into
// another number of them. Threads: any.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "workload/schedule.h"

namespace tandem::loadgen {

struct PromptUnits {
  std::vector<std::string> units;  // the first one begins every prompt, without its space
  // Tokens of a prompt beside a token for each unit: begin token, chat template, and the pieces
  // after the first into which the first unit is cut.
  int32_t overhead_tokens = 0;
  bool exact = true;  // false: units differ in length, so prompts have about the planned length
  double tokens_per_unit = 1.0;  // 1 if `exact`, else the mean
  // The shortest prompt that can be asked for.
  [[nodiscard]] int32_t least_tokens() const { return overhead_tokens + 1; }
};

// Counts the tokens of a prompt with this text, by asking the server.
using CountTokens = std::function<Result<int64_t>(const std::string& text)>;

// Finds units by a few dozen counts. An error when counting fails, or when the counts make no
// sense.
Result<PromptUnits> find_units(const CountTokens& count);

// The prompt of these parts: as many units as make their sum together with the overhead. Parts
// begin at the prompt's start, so the overhead is taken from the last ones.
std::string make_prompt(const std::vector<workload::PromptPart>& parts, const PromptUnits& units);

}  // namespace tandem::loadgen
