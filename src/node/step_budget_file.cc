#include "node/step_budget_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json_values.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr size_t kMostBytes = size_t{64} << 20;
constexpr int32_t kMostNesting = 16;

Error wrong(std::string message) { return invalid_argument(std::move(message), "step-budget"); }

Result<int32_t> read_micros(const json& object, std::string_view key, int64_t least) {
  const json* value = json_member(object, key);
  const std::optional<int64_t> micros = value == nullptr ? std::nullopt : json_integer(*value);
  if (!micros || *micros < least || *micros > std::numeric_limits<int32_t>::max()) {
    return wrong(fmt::format("'{}' must be whole microseconds, {} to {}", key, least,
                             std::numeric_limits<int32_t>::max()));
  }
  return static_cast<int32_t>(*micros);
}

Result<std::string> read_text(const json& object, std::string_view key) {
  const json* value = json_member(object, key);
  std::optional<std::string> text = value == nullptr ? std::nullopt : json_string(*value);
  if (!text) {
    return wrong(fmt::format("'{}' is missing, or no text", key));
  }
  return *std::move(text);
}

Status read_held(const json& held, StepBudgetFile& file) {
  if (!held.is_object()) {
    return wrong("'hold_us' must be an object of metrics");
  }
  for (const auto& [name, value] : held.items()) {
    const auto known = std::ranges::find(kHeldMetrics, name);
    if (known == kHeldMetrics.end()) {
      return wrong(
          fmt::format("'hold_us' has the unknown metric '{}' (known: mean_tbt, p99_tbt, "
                      "mean_ttft, p99_ttft)",
                      name));
    }
    ASSIGN_OR_RETURN(file.held_us.at(static_cast<size_t>(known - kHeldMetrics.begin())),
                     read_micros(held, name, 1));
  }
  return {};
}

}  // namespace

Result<StepBudgetFile> parse_step_budget(std::string_view text) {
  if (json_nests_deeper(text, kMostNesting)) {
    return wrong("it nests too deeply for a step budget");
  }
  const json parsed = json::parse(text, nullptr, false);
  if (!parsed.is_object() || !parsed.contains("tandem_step_budget")) {
    return wrong("it is not what `tandem tune -o FILE` writes");
  }
  const json& version = parsed["tandem_step_budget"];
  if (json_integer(version) != 1) {
    return wrong(fmt::format("its version is {}, and this build reads 1: tune anew",
                             version.dump(-1, ' ', true, json::error_handler_t::replace)));
  }
  StepBudgetFile file;
  ASSIGN_OR_RETURN(file.budget_us, read_micros(parsed, "step_budget_us", 1));
  if (const json* flex_only = json_member(parsed, "flex_only")) {
    if (!flex_only->is_boolean()) {
      return wrong("'flex_only' must be true or false");
    }
    file.flex_only = flex_only->get<bool>();
  }
  ASSIGN_OR_RETURN(file.model, read_text(parsed, "model"));
  ASSIGN_OR_RETURN(file.model_digest, read_text(parsed, "model_digest"));
  if (const json* held = json_member(parsed, "hold_us")) {
    RETURN_IF_ERROR(read_held(*held, file));
  }
  return file;
}

Result<StepBudgetFile> read_step_budget(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string text(kMostBytes + 1, '\0');
  if (stream.is_open()) {
    stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  }
  if (!stream.is_open() || stream.bad()) {
    return wrong(
        fmt::format("the step budget '{}' cannot be read: {}; give a time such as 20ms, "
                    "or a file of `tandem tune -o`",
                    path.string(), std::strerror(errno)));
  }
  text.resize(static_cast<size_t>(stream.gcount()));
  if (text.size() > kMostBytes) {
    return wrong(fmt::format("the step budget '{}' cannot be used: it is larger than 64 MiB",
                             path.string()));
  }
  Result<StepBudgetFile> file = parse_step_budget(text);
  if (!file.ok()) {
    return wrong(fmt::format("the step budget '{}' cannot be used: {}", path.string(),
                             file.error().message));
  }
  return file;
}

}  // namespace tandem
