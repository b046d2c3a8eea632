#include "openai/token_routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "openai/chat_prompt.h"
#include "openai/json_output.h"

namespace tandem::openai {

namespace {

int64_t max_listed_tokens(const ParseContext& context) {
  return std::max<int64_t>(context.limits.max_listed_tokens, context.model.max_model_len);
}

// The text may be longer than the context, but not without end.
Result<std::vector<TokenId>> encode(const std::string& text, text::EncodeOptions options,
                                    std::string_view field, const ParseContext& context) {
  options.max_tokens = max_listed_tokens(context);
  Result<std::vector<TokenId>> tokens = context.tokenizer.encode(text, options);
  if (!tokens.ok() && tokens.error().code == ErrorCode::kPayloadTooLarge) {
    return invalid_argument(
        fmt::format("'{}' has more than {} tokens; send it in parts", field, options.max_tokens),
        std::string(field));
  }
  return tokens;
}

Result<std::vector<TokenId>> tokens_of(const FieldReader& fields, const ParseContext& context) {
  ASSIGN_OR_RETURN(const auto add_special, fields.boolean("add_special_tokens"));
  if (fields.find("messages") != nullptr) {
    RETURN_IF_ERROR(refuse_unsupported(fields));
    ASSIGN_OR_RETURN(const std::string text,
                     render_chat(fields, context.chat_template, context.now()));
    return encode(text,
                  {.add_special_tokens = add_special.value_or(false), .parse_special_tokens = true},
                  "messages", context);
  }
  ASSIGN_OR_RETURN(const auto prompt, fields.string("prompt"));
  if (!prompt) {
    return invalid_argument("'prompt' (a string) or 'messages' (a list) is missing", "prompt");
  }
  return encode(*prompt,
                {.add_special_tokens = add_special.value_or(true), .parse_special_tokens = true},
                "prompt", context);
}

void append_tokens(std::string& out, std::span<const TokenId> tokens) {
  out += '[';
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) {
      out += ',';
    }
    append_integer(out, tokens[i]);
  }
  out += ']';
}

void append_card(std::string& out, std::string_view name, const ServedModel& model) {
  out += R"({"id":)";
  append_untrusted_string(out, name);
  out += R"(,"object":"model","created":)";
  append_integer(out, model.created_unix_seconds);
  out += R"(,"owned_by":"tandem","root":)";
  append_untrusted_string(out, model.root.empty() ? model.names.front() : model.root);
  out += R"(,"parent":null,"max_model_len":)";
  append_integer(out, model.max_model_len);
  out += '}';
}

}  // namespace

Result<std::string> tokenize(std::string_view body, const ModelDirectory& models) {
  ASSIGN_OR_RETURN(const Json json, parse_object(body, models.limits().json));
  const FieldReader fields(json);
  ASSIGN_OR_RETURN(const OfferedModel* offered, models.find_for(fields));
  const ParseContext& context = offered->parse;
  ASSIGN_OR_RETURN(const auto with_strings, fields.boolean("return_token_strs"));
  ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, tokens_of(fields, context));
  std::string out = R"({"count":)";
  append_integer(out, std::ssize(tokens));
  out += R"(,"max_model_len":)";
  append_integer(out, context.model.max_model_len);
  out += R"(,"tokens":)";
  append_tokens(out, tokens);
  out += R"(,"token_strs":)";
  if (!with_strings.value_or(false)) {
    out += "null}";
    return out;
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    out += i == 0 ? '[' : ',';
    append_untrusted_string(out, context.tokenizer.token_bytes(tokens[i]));
  }
  out += tokens.empty() ? "[]}" : "]}";
  return out;
}

Result<std::string> detokenize(std::string_view body, const ModelDirectory& models) {
  ASSIGN_OR_RETURN(const Json json, parse_object(body, models.limits().json));
  const FieldReader fields(json);
  ASSIGN_OR_RETURN(const OfferedModel* offered, models.find_for(fields));
  const ParseContext& context = offered->parse;
  ASSIGN_OR_RETURN(const Json* list, fields.array("tokens"));
  if (list == nullptr) {
    return invalid_argument("'tokens' (a list of token ids) is missing", "tokens");
  }
  if (std::ssize(*list) > max_listed_tokens(context)) {
    return invalid_argument(fmt::format("'tokens' has {} tokens, at most {} are allowed; send them "
                                        "in parts",
                                        list->size(), max_listed_tokens(context)),
                            "tokens");
  }
  ASSIGN_OR_RETURN(const std::vector<TokenId> tokens,
                   parse_token_ids(*list, "tokens", context.model.vocabulary));
  std::string out = R"({"prompt":)";
  append_string(out, context.tokenizer.decode(tokens, {.skip_special_tokens = false}));
  out += '}';
  return out;
}

std::string model_list(const ModelDirectory& models) {
  std::string out = R"({"object":"list","data":[)";
  bool first = true;
  for (const OfferedModel& offered : models.models()) {
    for (const std::string& name : offered.parse.model.names) {
      out += first ? "" : ",";
      first = false;
      append_card(out, name, offered.parse.model);
    }
  }
  out += "]}";
  return out;
}

Result<std::string> model_card(std::string_view name, const ModelDirectory& models) {
  ASSIGN_OR_RETURN(const OfferedModel* offered, models.find(name));
  const ServedModel& model = offered->parse.model;
  std::string out;
  append_card(out, name.empty() ? std::string_view(model.names.front()) : name, model);
  return out;
}

}  // namespace tandem::openai
