#include "model/generation_config.h"

#include <algorithm>
#include <system_error>

#include "model/json_fields.h"

namespace tandem::model {
namespace {

constexpr int64_t kMaxFileBytes = 1 << 20;

Result<std::optional<float>> number(const JsonFields& fields, const char* key, NumberRange range) {
  ASSIGN_OR_RETURN(const std::optional<double> value, fields.number(key, range));
  return value ? std::optional<float>(static_cast<float>(*value)) : std::nullopt;
}

}  // namespace

Result<GenerationDefaults> parse_generation_config(const std::string& json_text,
                                                   int32_t vocabulary) {
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::parse("generation_config.json", json_text));
  GenerationDefaults defaults;
  const IntegerRange ids{0, vocabulary - 1};
  ASSIGN_OR_RETURN(const std::vector<int64_t> ends, fields.integers("eos_token_id", ids));
  for (const int64_t id : ends) {
    defaults.eos_token_ids.push_back(static_cast<TokenId>(id));
  }
  ASSIGN_OR_RETURN(const std::vector<int64_t> begins, fields.integers("bos_token_id", ids));
  if (!begins.empty()) {
    defaults.bos_token_id = static_cast<TokenId>(begins.front());
  }
  ASSIGN_OR_RETURN(defaults.do_sample, fields.boolean("do_sample"));
  ASSIGN_OR_RETURN(defaults.temperature, number(fields, "temperature", {0.0, 100.0}));
  ASSIGN_OR_RETURN(defaults.top_p, number(fields, "top_p", {1e-9, 1.0}));
  ASSIGN_OR_RETURN(defaults.min_p, number(fields, "min_p", {0.0, 1.0}));
  ASSIGN_OR_RETURN(defaults.repetition_penalty,
                   number(fields, "repetition_penalty", {1e-3, 1000.0}));
  ASSIGN_OR_RETURN(const std::optional<int64_t> max_new_tokens,
                   fields.integer("max_new_tokens", {1, 1 << 30}));
  if (max_new_tokens) {
    defaults.max_new_tokens = static_cast<int32_t>(*max_new_tokens);
  }
  ASSIGN_OR_RETURN(const std::optional<int64_t> top_k, fields.integer("top_k", {-1, 1 << 24}));
  if (top_k) {
    defaults.top_k = static_cast<int32_t>(std::max<int64_t>(*top_k, 0));  // -1 also means off
  }
  return defaults;
}

Result<GenerationDefaults> read_generation_config(const std::filesystem::path& folder,
                                                  int32_t vocabulary) {
  const std::filesystem::path file = folder / "generation_config.json";
  std::error_code failure;
  if (!std::filesystem::exists(file, failure) && !failure) {
    return GenerationDefaults{};
  }
  ASSIGN_OR_RETURN(const std::string text, read_text_file(file, kMaxFileBytes));
  Result<GenerationDefaults> parsed = parse_generation_config(text, vocabulary);
  if (!parsed.ok()) {
    Error error = parsed.error();
    error.message += ". Mend the file, or delete it to serve without its defaults";
    return error;
  }
  return parsed;
}

}  // namespace tandem::model
