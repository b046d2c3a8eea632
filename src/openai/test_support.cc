#include "openai/test_support.h"

#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

namespace tandem::openai {

ByteTokenizer::ByteTokenizer() : bytes_(256, '\0') {
  std::iota(bytes_.begin(), bytes_.end(), '\0');
  traits_.vocab_size = kVocabulary;
  traits_.bos_id = kBos;
  traits_.eos_id = kEos;
}

Result<std::vector<TokenId>> ByteTokenizer::encode(std::string_view text,
                                                   text::EncodeOptions options) const {
  std::vector<TokenId> ids;
  if (options.add_special_tokens) {
    ids.push_back(kBos);
  }
  for (size_t i = 0; i < text.size(); ++i) {
    if (std::ssize(ids) >= options.max_tokens) {
      return Error{ErrorCode::kPayloadTooLarge, "more tokens than asked for", ""};
    }
    if (options.parse_special_tokens && text.substr(i).starts_with("</s>")) {
      ids.push_back(kEos);
      i += 3;
    } else {
      ids.push_back(static_cast<uint8_t>(text[i]));
    }
  }
  return ids;
}

std::string_view ByteTokenizer::token_bytes(TokenId id) const {
  switch (id) {
    case kBos:
      return "<s>";
    case kEos:
      return "</s>";
    case kHello:
      return "hello";
    case kWorld:
      return " world";
    default:
      return id >= 0 && id < 256 ? std::string_view(bytes_).substr(static_cast<size_t>(id), 1)
                                 : std::string_view();
  }
}

std::optional<TokenId> ByteTokenizer::id_of(std::string_view token) const {
  for (TokenId id = 0; id < kVocabulary; ++id) {
    if (token_bytes(id) == token) {
      return id;
    }
  }
  return std::nullopt;
}

text::ChatTemplate small_chat_template() {
  auto parsed = text::ChatTemplate::parse(
      "{% if tools %}{{ '{' }}{% for tool in tools %}{{ tool.function.name }}{% endfor %}{{ '}' }}"
      "{% endif %}{% for message in messages %}[{{ message.role }}]{{ message.content }}"
      "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}",
      {});
  return std::move(parsed).value();
}

ServedModel tiny_model() {
  ServedModel model;
  model.names = {"tiny", "small"};
  model.root = "tiny-folder";
  model.created_unix_seconds = 1700000000;
  model.max_model_len = 64;
  model.vocabulary = ByteTokenizer::kVocabulary;
  model.max_choices = 4;
  return model;
}

Result<GenerationRequest> parse_generation(Endpoint endpoint, std::string_view body,
                                           const ParseContext& context) {
  ASSIGN_OR_RETURN(const Json json, parse_object(body, context.limits.json));
  return parse_generation(endpoint, FieldReader(json), context);
}

TokenEvent token_event(TokenId token, int32_t choice) {
  TokenEvent event;
  event.token = token;
  event.choice = choice;
  return event;
}

TokenEvent finish_event(FinishReason reason, int32_t choice) {
  TokenEvent event;
  event.kind = TokenEvent::Kind::kFinish;
  event.finish = std::make_unique<FinishInfo>();
  event.finish->reason = reason;
  event.choice = choice;
  return event;
}

std::vector<TokenEvent> text_events(std::string_view text) {
  std::vector<TokenEvent> events;
  for (const char byte : text) {
    events.push_back(token_event(static_cast<uint8_t>(byte)));
  }
  return events;
}

void deliver_answer(RequestId id, const Request& request, std::string_view text, int32_t choice) {
  std::vector<TokenEvent> events = text_events(text);
  events.push_back(finish_event(FinishReason::kLength));
  for (TokenEvent& event : events) {
    event.request = id;
    event.tag = request.sink_tag;
    event.choice = choice;
  }
  request.sink->deliver(std::move(events));
}

}  // namespace tandem::openai
