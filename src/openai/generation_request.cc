#include "openai/generation_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "openai/chat_prompt.h"
#include "openai/service_fields.h"

namespace tandem::openai {

namespace {

constexpr int32_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr int32_t kDefaultCompletionTokens = 16;
constexpr size_t kMaxShownName = 256;
constexpr std::string_view kPromptShapes =
    "a string, a list of strings, a list of token ids, or a list of lists of token ids";

Error does_not_fit(std::string_view prompt_tokens, const ServedModel& model, Endpoint endpoint) {
  return invalid_argument(
      fmt::format("This model's maximum context length is {} tokens, and the prompt has {}, which "
                  "leaves no room for output; shorten the prompt",
                  model.max_model_len, prompt_tokens),
      endpoint == Endpoint::kChat ? "messages" : "prompt");
}

// Appends the tokens of a prompt. Sets `too_long` if it does not fit the context.
Status encode_prompt(const std::string& text, text::EncodeOptions options,
                     const ParseContext& context, GenerationRequest& out) {
  options.max_tokens = max_counted_tokens(context.model.max_model_len);
  Result<std::vector<TokenId>> tokens = context.tokenizer.encode(text, options);
  if (!tokens.ok() && tokens.error().code == ErrorCode::kPayloadTooLarge) {
    out.prompts.emplace_back();
    out.too_long =
        does_not_fit(fmt::format("more than {}", options.max_tokens), context.model, out.endpoint);
    return {};
  }
  ASSIGN_OR_RETURN(out.prompts.emplace_back(), std::move(tokens));
  if (std::ssize(out.prompts.back()) >= context.model.max_model_len) {
    out.too_long =
        does_not_fit(std::to_string(out.prompts.back().size()), context.model, out.endpoint);
  }
  return {};
}

Status parse_prompts(const FieldReader& fields, const ParseContext& context,
                     GenerationRequest& out) {
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) {
    return invalid_argument(fmt::format("'prompt' is missing; give {}", kPromptShapes), "prompt");
  }
  ASSIGN_OR_RETURN(const auto add_special, fields.boolean("add_special_tokens"));
  const auto encode = [&](const Json& text) {
    return encode_prompt(
        text.get_ref<const std::string&>(),
        {.add_special_tokens = add_special.value_or(true), .parse_special_tokens = true}, context,
        out);
  };
  if (prompt->is_string()) {
    return encode(*prompt);
  }
  if (!prompt->is_array() || prompt->empty()) {
    return fields.wrong("prompt", kPromptShapes, *prompt);
  }
  if (prompt->front().is_number()) {
    ASSIGN_OR_RETURN(out.prompts.emplace_back(),
                     parse_token_ids(*prompt, "prompt", context.model.vocabulary));
    return {};
  }
  if (std::ssize(*prompt) > context.limits.max_prompts) {
    return invalid_argument(
        fmt::format("'prompt' holds {} prompts, at most {} are allowed in one request",
                    prompt->size(), context.limits.max_prompts),
        "prompt");
  }
  for (const Json& item : *prompt) {
    if (out.too_long) {
      break;  // the request is refused, whatever the others are
    }
    if (item.is_string() && prompt->front().is_string()) {
      RETURN_IF_ERROR(encode(item));
    } else if (item.is_array() && prompt->front().is_array()) {
      ASSIGN_OR_RETURN(out.prompts.emplace_back(),
                       parse_token_ids(item, "prompt", context.model.vocabulary));
    } else {
      return fields.wrong("prompt", kPromptShapes, item);
    }
  }
  return {};
}

Status parse_chat_prompt(const FieldReader& fields, const ParseContext& context,
                         GenerationRequest& out) {
  ASSIGN_OR_RETURN(const auto add_special_tokens, fields.boolean("add_special_tokens"));
  ASSIGN_OR_RETURN(const std::string text,
                   render_chat(fields, context.chat_template, context.now()));
  // The template writes BOS and the like itself.
  return encode_prompt(
      text,
      {.add_special_tokens = add_special_tokens.value_or(false), .parse_special_tokens = true},
      context, out);
}

Status parse_stream(const FieldReader& fields, GenerationRequest& out) {
  ASSIGN_OR_RETURN(const auto stream, fields.boolean("stream"));
  out.stream = stream.value_or(false);
  ASSIGN_OR_RETURN(const Json* options, fields.object("stream_options"));
  if (options == nullptr) {
    return {};
  }
  if (!out.stream) {
    return invalid_argument("'stream_options' is only allowed with \"stream\": true",
                            "stream_options");
  }
  const FieldReader option_fields(*options, "stream_options.");
  ASSIGN_OR_RETURN(const auto include_usage, option_fields.boolean("include_usage"));
  ASSIGN_OR_RETURN(const auto continuous, option_fields.boolean("continuous_usage_stats"));
  if (include_usage.value_or(false)) {
    out.stream_usage = continuous.value_or(false) ? StreamUsage::kContinuous : StreamUsage::kAtEnd;
  }
  return {};
}

Status parse_logprobs(const FieldReader& fields, const SamplingLimits& limits,
                      GenerationRequest& out) {
  if (out.endpoint == Endpoint::kCompletions) {
    ASSIGN_OR_RETURN(const auto count, fields.integer("logprobs", 0, limits.max_logprobs));
    out.sampling.logprobs = static_cast<int32_t>(count.value_or(-1));
    return {};
  }
  ASSIGN_OR_RETURN(const auto wanted, fields.boolean("logprobs"));
  ASSIGN_OR_RETURN(const auto top, fields.integer("top_logprobs", 0, limits.max_logprobs));
  if (top.value_or(0) > 0 && !wanted.value_or(false)) {
    return invalid_argument("'top_logprobs' is only allowed with \"logprobs\": true",
                            "top_logprobs");
  }
  out.sampling.logprobs = wanted.value_or(false) ? static_cast<int32_t>(top.value_or(0)) : -1;
  return {};
}

// echo and prompt_logprobs, both of completions only.
Status parse_prompt_scores(const FieldReader& fields, const SamplingLimits& limits,
                           GenerationRequest& out) {
  ASSIGN_OR_RETURN(const auto echo, fields.boolean("echo"));
  ASSIGN_OR_RETURN(const auto scores, fields.integer("prompt_logprobs", 0, limits.max_logprobs));
  if (out.endpoint == Endpoint::kChat && (echo.value_or(false) || scores)) {
    const std::string name = scores ? "prompt_logprobs" : "echo";
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("'{}' is not supported in chat, only in /v1/completions; leave it out", name),
        name};
  }
  if (scores && out.stream) {
    return invalid_argument(
        "'prompt_logprobs' is only allowed without \"stream\": true; 'echo' with 'logprobs' can be "
        "streamed",
        "prompt_logprobs");
  }
  out.echo = echo.value_or(false);
  out.prompt_logprobs = static_cast<int32_t>(scores.value_or(-1));
  out.sampling.prompt_logprobs =
      std::max(out.prompt_logprobs, out.echo ? out.sampling.logprobs : -1);
  return {};
}

// What echo puts before the answer: the text as it was sent, or what the token ids say.
std::vector<std::string> texts_of_prompts(const Json& prompt, const GenerationRequest& request,
                                          const text::Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    const Json& own = prompt.is_array() && !prompt.front().is_number() ? prompt[i] : prompt;
    texts.push_back(own.is_string()
                        ? own.get<std::string>()
                        : tokenizer.decode(request.prompts[i],
                                           {.skip_special_tokens = request.skip_special_tokens}));
  }
  return texts;
}

// Each choice shows its prompt's text.
Status check_echo(const GenerationRequest& request, const RequestLimits& limits) {
  int64_t bytes = 0;
  for (const std::string& text : request.prompt_texts) {
    bytes += std::ssize(text) * request.n;
  }
  if (bytes > limits.max_echo_bytes) {
    return invalid_argument(
        fmt::format("'echo' asks for {} bytes of prompts, at most {} are given; ask for fewer "
                    "choices ('n'), or leave 'echo' out",
                    bytes, limits.max_echo_bytes),
        "echo");
  }
  return {};
}

// Log-probabilities of a prompt are kept until it is done and answered in one piece.
Status check_scores(const GenerationRequest& request, const RequestLimits& limits) {
  int64_t scores = 0;
  for (const std::vector<TokenId>& prompt : request.prompts) {
    scores += std::ssize(prompt) * (int64_t{request.sampling.prompt_logprobs} + 1) * request.n;
  }
  if (scores > limits.max_scores) {
    return invalid_argument(
        fmt::format("{} log-probabilities of prompt tokens are asked for, at most {} are given; "
                    "send fewer or shorter prompts, or ask for fewer alternatives",
                    scores, limits.max_scores),
        request.prompt_logprobs >= 0 ? "prompt_logprobs" : "logprobs");
  }
  return {};
}

Status parse_lengths(const FieldReader& fields, const GenerationDefaults& defaults,
                     GenerationRequest& out) {
  const int32_t least = out.echo ? 0 : 1;  // without output there is the prompt to look at
  ASSIGN_OR_RETURN(const auto max_tokens, fields.integer("max_tokens", least, kMaxInt32));
  ASSIGN_OR_RETURN(const auto newer, fields.integer("max_completion_tokens", least, kMaxInt32));
  if (newer || max_tokens) {
    out.max_tokens = static_cast<int32_t>(newer ? *newer : *max_tokens);
  } else {
    out.max_tokens = out.endpoint == Endpoint::kCompletions
                         ? std::optional(kDefaultCompletionTokens)
                         : defaults.max_tokens;
  }
  ASSIGN_OR_RETURN(const auto min_tokens, fields.integer("min_tokens", 0, kMaxInt32));
  out.sampling.min_tokens = static_cast<int32_t>(min_tokens.value_or(0));
  if (out.sampling.min_tokens > out.max_tokens.value_or(kMaxInt32)) {
    return invalid_argument(
        fmt::format("'min_tokens' is {}, which is above the largest number of tokens, {}",
                    out.sampling.min_tokens, *out.max_tokens),
        "min_tokens");
  }
  if (out.max_tokens == 0) {
    out.discard_output = true;
    out.max_tokens = 1;
  }
  return {};
}

Status parse_choices(const FieldReader& fields, const ParseContext& context,
                     GenerationRequest& out) {
  const int32_t max_choices = std::max(1, context.model.max_choices);
  ASSIGN_OR_RETURN(const auto n, fields.integer("n", 1, kMaxInt32));
  if (n && *n > max_choices) {
    return invalid_argument(
        fmt::format("'n' is {}, but this server runs at most {} choices at a time; ask for fewer, "
                    "or serve with a larger --max-num-seqs",
                    *n, max_choices),
        "n");
  }
  out.n = static_cast<int32_t>(n.value_or(1));
  ASSIGN_OR_RETURN(const auto best_of, fields.integer("best_of", 1, kMaxInt32));
  if (best_of && *best_of != out.n) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("'best_of' ({}) other than 'n' ({}) is not supported; leave it out",
                             *best_of, out.n),
                 "best_of"};
  }
  return {};
}

Status parse_switches(const FieldReader& fields, GenerationRequest& out) {
  ASSIGN_OR_RETURN(const auto skip_special, fields.boolean("skip_special_tokens"));
  out.skip_special_tokens = skip_special.value_or(true);
  ASSIGN_OR_RETURN(const auto as_ids, fields.boolean("return_tokens_as_token_ids"));
  out.tokens_as_ids = as_ids.value_or(false);
  ASSIGN_OR_RETURN(out.service, parse_service_claim(fields));
  ASSIGN_OR_RETURN(out.explain, parse_explain(fields));
  if (out.explain && out.stream && out.stream_usage == StreamUsage::kNone) {
    out.stream_usage = StreamUsage::kAtEnd;  // where the explanation stands
  }
  ASSIGN_OR_RETURN(auto salt, fields.string("cache_salt"));
  out.cache_salt = std::move(salt).value_or("");
  return {};
}

}  // namespace

Result<std::vector<TokenId>> parse_token_ids(const Json& list, std::string_view field,
                                             int32_t vocabulary) {
  std::vector<TokenId> ids;
  ids.reserve(list.size());
  for (const Json& value : list) {
    const std::optional<int64_t> id = as_integer(value, 0, int64_t{vocabulary} - 1);
    if (!id) {
      return invalid_argument(fmt::format("'{}': token ids must be integers from 0 to {}, not {}",
                                          field, vocabulary - 1, describe(value)),
                              std::string(field));
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

Result<std::string> resolve_model(std::string_view name, const ServedModel& model) {
  CHECK(!model.names.empty(), "a served model without a name");
  if (name.empty()) {
    return model.names.front();
  }
  if (std::find(model.names.begin(), model.names.end(), name) == model.names.end()) {
    return unknown_model(name,
                         std::vector<std::string_view>(model.names.begin(), model.names.end()));
  }
  return std::string(name);
}

Error unknown_model(std::string_view name, std::span<const std::string_view> offered) {
  return {ErrorCode::kNotFound,
          fmt::format("the model '{}' does not exist here; this server has '{}'",
                      name.substr(0, kMaxShownName), fmt::join(offered, "', '")),
          "model"};
}

Result<GenerationRequest> parse_generation(Endpoint endpoint, const FieldReader& fields,
                                           const ParseContext& context) {
  GenerationRequest out;
  out.endpoint = endpoint;
  ASSIGN_OR_RETURN(const auto model, fields.string("model"));
  ASSIGN_OR_RETURN(out.model, resolve_model(model.value_or(""), context.model));
  RETURN_IF_ERROR(refuse_unsupported(fields));
  ASSIGN_OR_RETURN(out.sampling, parse_sampling(fields, context.defaults, context.limits.sampling,
                                                context.model.vocabulary));
  RETURN_IF_ERROR(parse_stream(fields, out));
  RETURN_IF_ERROR(parse_logprobs(fields, context.limits.sampling, out));
  RETURN_IF_ERROR(parse_prompt_scores(fields, context.limits.sampling, out));
  RETURN_IF_ERROR(parse_lengths(fields, context.defaults, out));
  RETURN_IF_ERROR(parse_choices(fields, context, out));
  RETURN_IF_ERROR(parse_switches(fields, out));
  ASSIGN_OR_RETURN(out.stop_strings, parse_stop_strings(fields, context.limits.sampling));
  if (out.stop_strings != nullptr) {
    out.sampling.stop_strings = out.stop_strings->strings();
  }
  RETURN_IF_ERROR(endpoint == Endpoint::kChat ? parse_chat_prompt(fields, context, out)
                                              : parse_prompts(fields, context, out));
  if (out.too_long) {
    return out;
  }
  const std::string field = endpoint == Endpoint::kChat ? "messages" : "prompt";
  for (const std::vector<TokenId>& prompt : out.prompts) {
    if (prompt.empty()) {
      return invalid_argument(fmt::format("'{}' is empty: at least one token is needed", field),
                              field);
    }
  }
  if (std::ssize(out.prompts) * out.n > context.limits.max_choices) {
    return invalid_argument(fmt::format("{} prompts with n = {} ask for more than {} choices",
                                        out.prompts.size(), out.n, context.limits.max_choices),
                            "n");
  }
  RETURN_IF_ERROR(check_scores(out, context.limits));
  if (out.echo) {
    out.prompt_texts = texts_of_prompts(*fields.find("prompt"), out, context.tokenizer);
    RETURN_IF_ERROR(check_echo(out, context.limits));
  }
  return out;
}

Result<Request> make_request(const GenerationRequest& generation, size_t prompt,
                             const ServedModel& model) {
  if (generation.too_long) {
    return *generation.too_long;
  }
  const std::vector<TokenId>& tokens = generation.prompts[prompt];
  const int64_t room = model.max_model_len - std::ssize(tokens);
  if (room < 1) {
    return does_not_fit(std::to_string(tokens.size()), model, generation.endpoint);
  }
  Request request;
  request.prompt = tokens;
  request.sampling = generation.sampling;
  request.sampling.max_tokens =
      static_cast<int32_t>(std::min<int64_t>(room, generation.max_tokens.value_or(kMaxInt32)));
  request.sampling.min_tokens = std::min(request.sampling.min_tokens, request.sampling.max_tokens);
  request.n = generation.n;
  request.explain = generation.explain;
  return request;
}

}  // namespace tandem::openai
