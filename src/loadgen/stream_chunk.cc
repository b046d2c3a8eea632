#include "loadgen/stream_chunk.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json_values.h"
#include "base/printable.h"

namespace tandem::loadgen {

namespace {

constexpr size_t kMostMessageBytes = 300;
constexpr int64_t kMostTokens = int64_t{1} << 32;  // of one answer

// The beginning, as a terminal and a page may show it.
std::string shown(std::string_view text) { return printable(text, kMostMessageBytes); }

// The member, or null when `object` is none or has no such member.
const nlohmann::json& member(const nlohmann::json& object, const char* name) {
  static const nlohmann::json kNull;
  const nlohmann::json* found = object.is_object() ? json_member(object, name) : nullptr;
  return found == nullptr ? kNull : *found;
}

int64_t count(const nlohmann::json& object, const char* name) {
  const int64_t number = json_integer(member(object, name)).value_or(0);
  return number < 0 || number > kMostTokens ? 0 : number;
}

std::optional<TokenUsage> usage_of(const nlohmann::json& answer) {
  const nlohmann::json& usage = member(answer, "usage");
  if (!member(usage, "prompt_tokens").is_number_integer()) {
    return std::nullopt;
  }
  TokenUsage counted{count(usage, "prompt_tokens"), count(usage, "completion_tokens"),
                     count(member(usage, "prompt_tokens_details"), "cached_tokens")};
  const nlohmann::json& choices = member(member(usage, "tandem"), "choices");
  if (choices.is_array() && !choices.empty()) {
    counted.slo_met = json_boolean(member(member(choices.front(), "slo"), "met"));
    counted.engine_ttft_ms = json_number(member(choices.front(), "ttft_ms"));
  }
  return counted;
}

std::string error_of(const nlohmann::json& answer) {
  const nlohmann::json& error = member(answer, "error");
  if (error.is_null()) {
    return {};
  }
  const nlohmann::json& message = error.is_string() ? error : member(error, "message");
  return message.is_string() && !message.get_ref<const std::string&>().empty()
             ? shown(message.get_ref<const std::string&>())
             : "an error without a message";
}

void read_choice(const nlohmann::json& choice, StreamChunk& chunk) {
  const nlohmann::json& delta = member(choice, "delta");
  const bool is_chat = delta.is_object();
  const nlohmann::json* text = is_chat ? &member(delta, "content") : &member(choice, "text");
  if (is_chat && !text->is_string()) {
    text = &member(delta, "reasoning_content");
    chunk.is_reasoning = text->is_string();
  }
  if (const nlohmann::json& reason = member(choice, "finish_reason"); reason.is_string()) {
    chunk.finish_reason = reason.get<std::string>();
  }
  const bool opens = is_chat && member(delta, "role").is_string();
  if (text->is_string()) {
    const bool empty = text->get_ref<const std::string&>().empty();
    chunk.text += text->get_ref<const std::string&>();
    chunk.has_text = chunk.has_text || !empty;
    chunk.has_token = chunk.has_token || !empty || (!opens && chunk.finish_reason.empty());
  }
}

}  // namespace

Result<StreamChunk> read_chunk(std::string_view data) {
  StreamChunk chunk;
  if (data == "[DONE]") {
    chunk.is_end = true;
    return chunk;
  }
  const nlohmann::json json = nlohmann::json::parse(data, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return invalid_argument(fmt::format("an event is no JSON object: {}", shown(data)));
  }
  chunk.error = error_of(json);
  chunk.usage = usage_of(json);
  if (const nlohmann::json& tier = member(json, "service_tier"); tier.is_string()) {
    chunk.service_tier = shown(tier.get_ref<const std::string&>());
  }
  const nlohmann::json& choices = member(json, "choices");
  if (choices.is_array()) {
    for (const nlohmann::json& choice : choices) {
      read_choice(choice, chunk);
    }
  } else if (chunk.error.empty() && !chunk.usage) {
    return invalid_argument(
        fmt::format("an event has neither choices, usage nor error: {}", shown(data)));
  }
  return chunk;
}

std::string error_message(std::string_view body) {
  const nlohmann::json json = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
  const std::string message = error_of(json);
  return message.empty() ? shown(body) : message;
}

std::optional<TokenUsage> read_usage(std::string_view body) {
  return usage_of(nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false));
}

}  // namespace tandem::loadgen
