#include "loadgen/request_body.h"

#include <fmt/format.h>

#include <algorithm>

#include "loadgen/client.h"

namespace tandem::loadgen {

namespace {

std::string headers_of(const EndpointOptions& endpoint, std::string_view more) {
  return fmt::format("{}{}",
                     endpoint.api_key.empty()
                         ? std::string()
                         : fmt::format("Authorization: Bearer {}\r\n", endpoint.api_key),
                     more);
}

nlohmann::json chat_body(const EndpointOptions& endpoint, const std::string& model,
                         nlohmann::json messages, int64_t most_tokens) {
  nlohmann::json body = {
      {"model", model}, {"messages", std::move(messages)}, {"max_completion_tokens", most_tokens}};
  if (endpoint.temperature) {
    body["temperature"] = *endpoint.temperature;
  }
  return body;
}

nlohmann::json body_of(const EndpointOptions& endpoint, const std::string& model, std::string text,
                       int64_t most_tokens) {
  if (endpoint.endpoint == Endpoint::kChat) {
    return chat_body(endpoint, model,
                     nlohmann::json::array({{{"role", "user"}, {"content", std::move(text)}}}),
                     most_tokens);
  }
  nlohmann::json body = {
      {"model", model}, {"prompt", std::move(text)}, {"max_tokens", most_tokens}};
  if (endpoint.temperature) {
    body["temperature"] = *endpoint.temperature;
  }
  return body;
}

std::string post(const EndpointOptions& endpoint, std::string_view headers,
                 const nlohmann::json& body) {
  return http_request(
      "POST", endpoint.url, endpoint.route,
      headers_of(endpoint, fmt::format("{}Content-Type: application/json\r\n", headers)),
      body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

Result<std::string> header_line(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const bool is_name = !name.empty() && colon != text.npos && std::ranges::all_of(name, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
  });
  std::string_view value = colon == text.npos ? "" : text.substr(colon + 1);
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  if (!is_name || std::ranges::any_of(value, [](char c) {
        return static_cast<unsigned char>(c) < ' ' || c == 127;
      })) {
    // Without what was given: it may be a key.
    return invalid_argument(
        is_name ? fmt::format("the value of the header '{}' has a control character", name)
                : std::string("a --header has no name before its colon; write Name: value"),
        "header");
  }
  return fmt::format("{}: {}\r\n", name, value);
}

std::string generation_request(const EndpointOptions& endpoint, const Load& load,
                               const LoadRequest& request, const PromptUnits& units) {
  const RequestGroup& group = load.groups[static_cast<size_t>(request.group)];
  const std::string& model = load.models[static_cast<size_t>(request.model)];
  nlohmann::json body =
      request.task != nullptr
          ? chat_body(endpoint, model, request.task->messages, request.plan.output_tokens)
          : body_of(endpoint, model, make_prompt(request.plan.prompt, units),
                    request.plan.output_tokens);
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  if (endpoint.ignore_eos && request.task == nullptr) {
    body["ignore_eos"] = true;
  }
  if (!group.service_tier.empty()) {
    body["service_tier"] = group.service_tier;
  }
  if (group.priority) {
    body["priority"] = *group.priority;
  }
  if (group.slo.ttft) {
    body["slo"]["ttft"] = format_ttft_rule(*group.slo.ttft);
  }
  if (group.slo.tpot) {
    body["slo"]["tpot"] = format_ttft_rule({.base = *group.slo.tpot});
  }
  if (group.explain) {
    body["tandem"] = {{"explain", true}};
  }
  body.update(endpoint.extra_body);
  return post(endpoint, group.headers, body);
}

std::string counting_request(const EndpointOptions& endpoint, const std::string& model,
                             const std::string& text) {
  return post(endpoint, endpoint.headers, body_of(endpoint, model, text, 1));
}

std::string get_request(const EndpointOptions& endpoint, std::string_view path) {
  return http_request("GET", endpoint.url, path, headers_of(endpoint, endpoint.headers), {});
}

}  // namespace tandem::loadgen
