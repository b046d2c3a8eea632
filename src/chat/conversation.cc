#include "chat/conversation.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_values.h"
#include "base/units.h"

namespace tandem::chat {
namespace {

constexpr const char* kBestEffort = "best_effort";

}  // namespace

Conversation::Conversation(ConversationOptions options) : options_(std::move(options)) {
  restart();
}

void Conversation::restart() {
  messages_.clear();
  if (!options_.system.empty()) {
    messages_.push_back({"system", options_.system});
  }
}

void Conversation::ask(std::string text) { messages_.push_back({"user", std::move(text)}); }

void Conversation::answered(std::string text) {
  messages_.push_back({"assistant", std::move(text)});
}

void Conversation::forget_question() { messages_.pop_back(); }

std::string Conversation::request_body() const {
  nlohmann::ordered_json body;
  body["model"] = options_.model;
  for (const Message& message : messages_) {
    body["messages"].push_back({{"role", message.role}, {"content", message.text}});
  }
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  if (!options_.service_class.empty()) {
    body["service_tier"] = options_.service_class == kBestEffort ? "flex" : "priority";
  }
  if (options_.max_tokens > 0) {
    body["max_tokens"] = options_.max_tokens;
  }
  if (options_.temperature) {
    body["temperature"] = *options_.temperature;
  }
  return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Status Answer::feed(std::string_view bytes, Nanos now,
                    const std::function<void(std::string_view)>& on_text) {
  Status failure;
  const Status read = parser_.feed(bytes, [&](std::string_view event) {
    const Result<loadgen::StreamChunk> chunk = loadgen::read_chunk(event);
    if (!failure.ok() || ended_) {
      return;
    }
    if (!chunk.ok()) {
      failure = chunk.error();
      return;
    }
    if (!chunk->error.empty()) {
      failure = Error{ErrorCode::kUnavailable, chunk->error, {}};
      return;
    }
    ended_ = chunk->is_end;
    if (!chunk->text.empty()) {
      first_ = pieces_ == 0 ? now : first_;
      last_ = now;
      ++pieces_;
      const bool answer_begins = reasons_ && !chunk->is_reasoning;
      reasons_ = chunk->is_reasoning;
      text_ += chunk->is_reasoning ? std::string() : chunk->text;
      on_text(answer_begins ? "\n\n" + chunk->text : chunk->text);
    }
    service_tier_ = chunk->service_tier.empty() ? service_tier_ : chunk->service_tier;
    finish_reason_ = chunk->finish_reason.empty() ? finish_reason_ : chunk->finish_reason;
    usage_ = chunk->usage ? chunk->usage : usage_;
  });
  return failure.ok() ? read : failure;
}

std::string Answer::summary() const {
  if (pieces_ == 0) {
    return {};
  }
  const int64_t tokens = usage_ ? usage_->completion_tokens : pieces_;
  std::string line = fmt::format("first token after {}", format_duration(first_ - sent_));
  if (tokens > 1 && last_ > first_) {
    line += fmt::format(", {:.1f} tokens/s",
                        static_cast<double>(tokens - 1) / to_seconds(last_ - first_));
  }
  line += fmt::format(", {} {}", tokens, tokens == 1 ? "token" : "tokens");
  if (!service_tier_.empty()) {
    line += service_tier_ == "flex"       ? ", best_effort"
            : service_tier_ == "priority" ? ", latency_sensitive"
                                          : "";
  }
  if (usage_ && usage_->slo_met) {
    line += *usage_->slo_met ? ", target met" : ", target missed";
  }
  return finish_reason_ == "length" ? line + ", cut at the limit of tokens" : line;
}

Result<std::vector<std::string>> model_ids(std::string_view body) {
  const nlohmann::json json = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
  const nlohmann::json* data = json.is_object() ? json_member(json, "data") : nullptr;
  std::vector<std::string> ids;
  if (data != nullptr && data->is_array()) {
    for (const nlohmann::json& model : *data) {
      const nlohmann::json* id = model.is_object() ? json_member(model, "id") : nullptr;
      if (id != nullptr && id->is_string()) {
        ids.push_back(id->get<std::string>());
      }
    }
  }
  if (ids.empty()) {
    return Error{
        ErrorCode::kUnavailable, "the server names no models: is it one with the OpenAI API?", {}};
  }
  return ids;
}

}  // namespace tandem::chat
