#include "openai/prompt_submission.h"

#include <utility>

#include "openai/service_fields.h"

namespace tandem::openai {

Result<std::vector<Request>> make_requests(const GenerationRequest& generation,
                                           const ServedModel& model) {
  std::vector<Request> requests;
  requests.reserve(generation.prompts.size());
  for (size_t prompt = 0; prompt < generation.prompts.size(); ++prompt) {
    ASSIGN_OR_RETURN(requests.emplace_back(), make_request(generation, prompt, model));
  }
  return requests;
}

Status settle_service(const ServiceClaim& claim, const ServiceGrant& grant,
                      const ServiceDefaults& defaults, GenerationRequest& generation,
                      std::span<Request> requests) {
  for (Request& request : requests) {
    ASSIGN_OR_RETURN(const ServiceTerms terms,
                     settle(claim, grant, defaults, std::ssize(request.prompt)));
    request.service_class = terms.service_class;
    request.level = terms.level;
    request.slo = terms.slo;
    generation.service_tier = tier_used(claim, terms, defaults);
  }
  return {};
}

std::string salted_tenant(std::string_view tenant, const GenerationRequest& generation) {
  std::string salted(tenant);
  if (!generation.cache_salt.empty()) {
    salted += '/' + generation.cache_salt;
  }
  return salted;
}

std::string answer_id(Endpoint endpoint, std::string_view request_id) {
  std::string id = endpoint == Endpoint::kChat ? "chatcmpl-" : "cmpl-";
  id += request_id;
  return id;
}

std::variant<PromptSubmission, Refusal> PromptSubmission::submit(
    const GenerationRequest& generation, std::vector<Request> requests, const PromptOrigin& origin,
    Frontend& frontend) {
  PromptSubmission submission(frontend);
  for (size_t prompt = 0; prompt < requests.size(); ++prompt) {
    Request& request = requests[prompt];
    request.external_id = origin.request_id;
    request.tenant = salted_tenant(origin.tenant, generation);
    request.sink = origin.sink;
    request.sink_tag = origin.make_tag(prompt);
    request.followers = static_cast<int32_t>(requests.size() - prompt - 1);
    const Submission id = frontend.submit(std::move(request));
    if (!id.ok()) {
      submission.cancel();
      return id.refusal();
    }
    submission.requests_.push_back(id.value());
  }
  return submission;
}

void PromptSubmission::cancel() const {
  for (const RequestId request : requests_) {
    frontend_->cancel(request);
  }
}

}  // namespace tandem::openai
