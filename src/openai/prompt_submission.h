// The way of a body's prompts to the engine: a Request for each, which share the body's terms of
// service, and of which all are submitted or none. Threads: any; one owner at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "openai/generation.h"
#include "openai/generation_request.h"
#include "request/frontend.h"
#include "request/request.h"
#include "request/service.h"

namespace tandem::openai {

// One Request per prompt. Error as of make_request: a prompt does not fit the context.
[[nodiscard]] Result<std::vector<Request>> make_requests(const GenerationRequest& generation,
                                                         const ServedModel& model);

// Gives the requests the class, level and SLO that `claim` gets, and the answer its service_tier.
[[nodiscard]] Status settle_service(const ServiceClaim& claim, const ServiceGrant& grant,
                                    const ServiceDefaults& defaults, GenerationRequest& generation,
                                    std::span<Request> requests);

// The salt of a body's prefixes in the cache: that of its tenant, and the body's own.
[[nodiscard]] std::string salted_tenant(std::string_view tenant,
                                        const GenerationRequest& generation);

// The id of the answer to the request `request_id`: "cmpl-..." or "chatcmpl-...".
[[nodiscard]] std::string answer_id(Endpoint endpoint, std::string_view request_id);

// Where prompts come from and their events go.
struct PromptOrigin {
  std::string request_id;  // of the body
  std::string tenant;      // of its API key; empty: none
  std::shared_ptr<TokenSink> sink;
  std::function<uint64_t(size_t prompt)>
      make_tag;  // called once per prompt, before it is submitted
};

// The prompts of a body that the engine has accepted. Borrows the front end; ends nothing by
// itself.
class PromptSubmission {
 public:
  // Submits `requests`, the prompts of `generation` in order. If one is refused, those before it
  // are cancelled.
  static std::variant<PromptSubmission, Refusal> submit(const GenerationRequest& generation,
                                                        std::vector<Request> requests,
                                                        const PromptOrigin& origin,
                                                        Frontend& frontend);

  // A stop string was found in this choice: the front end ends it.
  void stop(size_t prompt, int32_t choice) const { frontend_->stop(requests_[prompt], choice); }
  // Ends all prompts that have not ended.
  void cancel() const;
  [[nodiscard]] const Frontend& frontend() const { return *frontend_; }

 private:
  explicit PromptSubmission(Frontend& frontend) : frontend_(&frontend) {}

  Frontend* frontend_;
  std::vector<RequestId> requests_;  // by prompt
};

}  // namespace tandem::openai
