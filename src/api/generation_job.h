// One HTTP request for generated text, from its body to the last event: prepared for the model that
// it names, submitted (one Request per prompt), answered, stopped, cancelled. No sockets. Threads:
// prepare() and submit() any; the rest one owner at a time.
#pragma once

#include <cstdint>
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
#include "openai/prompt_submission.h"
#include "request/request.h"

namespace tandem::api {

// Who asks, as far as the engine must know.
struct Asker {
  std::string request_id;
  std::string tenant;          // of the API key
  ServiceGrant grant;          // of the API key
  const HttpRequest& request;  // for its headers
};

// A body that was parsed and fits, the model that it names, and what the engine is asked: a Request
// per prompt.
struct PreparedGeneration {
  const openai::OfferedModel* model = nullptr;
  openai::GenerationRequest generation;
  std::vector<Request> requests;

  [[nodiscard]] size_t prompt_bytes() const;
};
using Preparation = std::variant<PreparedGeneration, HttpResponse>;

class GenerationJob;
using SubmittedGeneration = std::variant<std::unique_ptr<GenerationJob>, HttpResponse>;

class GenerationJob {
 public:
  // Where the events go.
  struct Destination {
    std::shared_ptr<TokenSink> sink;
    const std::vector<uint64_t>& tags;  // one per prompt
  };

  // Takes time in proportion to the body.
  static Preparation prepare(openai::Endpoint endpoint, std::string_view body, ApiContext& context);
  // Submits all prompts, or none and gives the answer that says why.
  static SubmittedGeneration submit(PreparedGeneration prepared, const Asker& asker,
                                    const Destination& destination, ApiContext& context);
  ~GenerationJob();  // as end()
  GenerationJob(const GenerationJob&) = delete;
  GenerationJob& operator=(const GenerationJob&) = delete;

  // Cancels what has not ended. The job may only be destroyed afterwards.
  void end();

  // Appends streamed text to `out` and tells the Frontend about stop strings.
  void take(size_t prompt, std::span<TokenEvent> events, std::string& out);
  // See openai::Generation: what is large is better written beside the I/O thread.
  [[nodiscard]] size_t prompt_bytes_of(size_t prompt, std::span<const TokenEvent> events) const {
    return generation_.prompt_bytes_of(prompt, events);
  }
  [[nodiscard]] int64_t kept_bytes() const { return generation_.kept_bytes(); }
  [[nodiscard]] size_t answer_bytes() const { return generation_.body_bytes(); }
  [[nodiscard]] size_t held_bytes() const { return generation_.held_bytes(); }
  [[nodiscard]] bool ended() const { return generation_.ended(); }
  [[nodiscard]] bool streams() const { return generation_.streams(); }
  // The whole answer. Needs ended() and !streams().
  [[nodiscard]] HttpResponse answer();
  [[nodiscard]] openai::Usage usage() const { return generation_.usage(); }
  [[nodiscard]] bool failed() const { return generation_.error().has_value(); }

 private:
  GenerationJob(openai::Generation generation, openai::PromptSubmission submission,
                ApiContext& context);

  ApiContext& context_;
  openai::Generation generation_;
  openai::PromptSubmission submission_;
  bool counted_ = true;  // among the generations being made
};

}  // namespace tandem::api
