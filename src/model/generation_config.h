// What generation_config.json says about sampling by default and about end tokens. Plain data; any
// thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace tandem::model {

class JsonFields;

// What a model's authors recommend where a request does not say. Absent: the file does not say.
struct GenerationDefaults {
  std::vector<TokenId> eos_token_ids;
  std::optional<TokenId> bos_token_id;
  std::optional<bool> do_sample;  // as written; false beside a temperature is common and means
                                  // little
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<int32_t> top_k;  // 0: off
  std::optional<float> repetition_penalty;
  std::optional<int32_t> max_new_tokens;
  std::vector<std::string> warnings;  // a line for each value that cannot be used and was left out
};

// An error where the text is no JSON object. Token ids must lie in the vocabulary.
Result<GenerationDefaults> parse_generation_config(const std::string& json_text,
                                                   int32_t vocabulary);

// The same fields, read from elsewhere.
GenerationDefaults parse_generation_config(const JsonFields& fields, int32_t vocabulary);

// Of a folder without the file: nothing is set.
Result<GenerationDefaults> read_generation_config(const std::filesystem::path& folder,
                                                  int32_t vocabulary);

}  // namespace tandem::model
