// One HTTP request for generated text, from its body to the last event: parsed, submitted (one
// Request per prompt), answered, stopped, cancelled. No sockets. Threads: parse() any; the rest one
// owner at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "api/api_context.h"
#include "api/http_message.h"
#include "openai/generation.h"
#include "openai/generation_request.h"
#include "request/request.h"

namespace tandem::api {

// Who asks, as far as the engine must know.
struct Asker {
  std::string request_id;
  std::string tenant;          // of the API key
  ServiceGrant grant;          // of the API key
  const HttpRequest& request;  // for its headers
};

class GenerationJob {
 public:
  // Where the events go: `tags` has one tag per prompt.
  struct Destination {
    std::shared_ptr<TokenSink> sink;
    std::function<uint64_t(size_t prompt)> make_tag;
  };

  // Submits all prompts, or none and gives the answer that says why.
  static std::variant<std::unique_ptr<GenerationJob>, HttpResponse> submit(
      Result<openai::GenerationRequest> parsed, const Asker& asker, const Destination& destination,
      ApiContext& context);
  ~GenerationJob();
  GenerationJob(const GenerationJob&) = delete;
  GenerationJob& operator=(const GenerationJob&) = delete;

  // Appends streamed text to `out` and tells the Frontend about stop strings.
  void take(size_t prompt, std::span<TokenEvent> events, std::string& out);
  [[nodiscard]] bool ended() const { return generation_.ended(); }
  [[nodiscard]] bool streams() const { return generation_.streams(); }
  // The whole answer. Needs ended() and !streams().
  [[nodiscard]] HttpResponse answer();
  [[nodiscard]] openai::Usage usage() const { return generation_.usage(); }
  [[nodiscard]] bool failed() const { return generation_.error().has_value(); }
  [[nodiscard]] const std::vector<uint64_t>& tags() const { return tags_; }

 private:
  GenerationJob(const openai::GenerationRequest& request, openai::AnswerIdentity identity,
                ApiContext& context);

  ApiContext& context_;
  openai::Generation generation_;
  std::vector<uint64_t> tags_;
  std::vector<RequestId> requests_;  // by prompt
};

}  // namespace tandem::api
