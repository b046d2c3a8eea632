#include "model/generation_config.h"

#include <algorithm>
#include <system_error>

#include "model/json_fields.h"

namespace tandem::model {
namespace {

constexpr int64_t kMaxFileBytes = 1 << 20;

std::optional<float> number(const JsonFields& fields, const char* key, NumberRange range,
                            std::vector<std::string>& warnings) {
  const std::optional<double> value = usable(fields.number(key, range), warnings);
  return value ? std::optional<float>(static_cast<float>(*value)) : std::nullopt;
}

std::optional<int32_t> integer(const JsonFields& fields, const char* key, IntegerRange range,
                               std::vector<std::string>& warnings) {
  const std::optional<int64_t> value = usable(fields.integer(key, range), warnings);
  return value ? std::optional<int32_t>(static_cast<int32_t>(*value)) : std::nullopt;
}

}  // namespace

Result<GenerationDefaults> parse_generation_config(const std::string& json_text,
                                                   int32_t vocabulary) {
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::parse("generation_config.json", json_text));
  return parse_generation_config(fields, vocabulary);
}

GenerationDefaults parse_generation_config(const JsonFields& fields, int32_t vocabulary) {
  GenerationDefaults defaults;
  std::vector<std::string>& warnings = defaults.warnings;
  const IntegerRange ids{0, vocabulary - 1};
  for (const int64_t id : fields.usable_integers("eos_token_id", ids, warnings)) {
    defaults.eos_token_ids.push_back(static_cast<TokenId>(id));
  }
  const std::vector<int64_t> begins = fields.usable_integers("bos_token_id", ids, warnings);
  if (!begins.empty()) {
    defaults.bos_token_id = static_cast<TokenId>(begins.front());
  }
  defaults.do_sample = usable(fields.boolean("do_sample"), warnings);
  defaults.temperature = number(fields, "temperature", {0.0, 100.0}, warnings);
  defaults.top_p = number(fields, "top_p", {1e-9, 1.0}, warnings);
  defaults.min_p = number(fields, "min_p", {0.0, 1.0}, warnings);
  defaults.repetition_penalty = number(fields, "repetition_penalty", {1e-3, 1000.0}, warnings);
  defaults.max_new_tokens = integer(fields, "max_new_tokens", {1, 1 << 30}, warnings);
  defaults.top_k = integer(fields, "top_k", {-1, 1 << 24}, warnings);
  if (defaults.top_k) {
    defaults.top_k = std::max(*defaults.top_k, 0);  // -1 also means off
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
