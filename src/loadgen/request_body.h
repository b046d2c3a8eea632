// The bytes of a generation request for any OpenAI server. Threads: any.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "loadgen/load.h"
#include "loadgen/prompt_text.h"
#include "loadgen/url.h"

namespace tandem::loadgen {

enum class Endpoint : uint8_t { kCompletions, kChat };

struct EndpointOptions {
  Url url;
  Endpoint endpoint = Endpoint::kCompletions;
  std::string route = "/v1/completions";
  std::string api_key;  // empty: none is sent
  // Of the requests before the load, whose groups have their own: whole lines, CRLF at their ends.
  std::string headers;
  bool ignore_eos = true;  // ask for exactly as many tokens as planned
  std::optional<double> temperature = 0.0;
  nlohmann::json extra_body = nlohmann::json::object();  // laid over every body
};

// A header line from "Name: value". An error when it could not stand in a request.
Result<std::string> header_line(std::string_view text);

std::string generation_request(const EndpointOptions& endpoint, const Load& load,
                               const LoadRequest& request, const PromptUnits& units);

// Asks for one token of an answer that is not streamed: its usage counts the prompt.
std::string counting_request(const EndpointOptions& endpoint, const std::string& model,
                             const std::string& text);

// GET of a path below the server's address.
std::string get_request(const EndpointOptions& endpoint, std::string_view path);

}  // namespace tandem::loadgen
