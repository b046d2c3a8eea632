#include "api/generation_job.h"

#include <utility>

#include "api/objectives.h"
#include "api/routes.h"
#include "api/service_headers.h"
#include "openai/service_fields.h"

namespace tandem::api {

namespace {

std::string_view reason_of(const Error& error, const ApiContext& context) {
  if (error.code == ErrorCode::kOverloaded) {
    return "queue_full";
  }
  const std::string_view reason = refusal_reason(context);
  return reason.empty() ? "unavailable" : reason;
}

HttpResponse refusal(const Error& error, ApiContext& context) {
  switch (error.code) {
    case ErrorCode::kOverloaded:
    case ErrorCode::kUnavailable:
    case ErrorCode::kResourceExhausted:
      return refuse(error, reason_of(error, context), context);
    case ErrorCode::kNotFound:
      return error_response(error, context, "model_not_found");
    case ErrorCode::kForbidden:
      return error_response(error, context, "class_not_allowed");
    default:
      return error_response(error, context);
  }
}

// Class, level and SLO: of the body, the headers, the objective, the key and the server.
Status settle_service(openai::GenerationRequest& generation, const Asker& asker,
                      ApiContext& context, std::vector<Request>& requests) {
  const ServerOptions& options = context.options;
  const ServiceDefaults& defaults = options.service;
  ASSIGN_OR_RETURN(const ServiceClaim headers, claim_of_headers(asker.request));
  ASSIGN_OR_RETURN(const ServiceGrant grant,
                   grant_for(asker.request, asker.grant, options.objectives));
  const ServiceClaim claim = claim_over(generation.service, headers);
  for (Request& request : requests) {
    ASSIGN_OR_RETURN(const ServiceTerms terms,
                     settle(claim, grant, defaults, std::ssize(request.prompt)));
    request.service_class = terms.service_class;
    request.level = terms.level;
    request.slo = terms.slo;
    generation.service_tier = openai::tier_used(claim, terms, defaults);
  }
  const std::vector<std::string_view> ignored =
      ignored_fields(claim, context.frontend.model().reads);
  generation.honoured = ignored.empty();
  for (const std::string_view field : ignored) {
    context.metrics.claim_ignored(field);
  }
  return {};
}

}  // namespace

GenerationJob::GenerationJob(const openai::GenerationRequest& request,
                             openai::AnswerIdentity identity, ApiContext& context)
    : context_(context), generation_(request, std::move(identity), context.parse.tokenizer) {
  ++context_.metrics.generations;
}

// Whatever has not ended is of no use any more; for what has, cancel() does nothing.
GenerationJob::~GenerationJob() {
  if (!generation_.ended() || generation_.error()) {
    for (const RequestId request : requests_) {
      context_.frontend.cancel(request);
    }
  }
  --context_.metrics.generations;
}

Preparation GenerationJob::prepare(openai::Endpoint endpoint, std::string_view body,
                                   ApiContext& context) {
  Result<openai::GenerationRequest> parsed =
      openai::parse_generation(endpoint, body, context.parse);
  if (!parsed.ok()) {
    return refusal(parsed.error(), context);
  }
  openai::GenerationRequest& generation = *parsed;
  std::vector<Request> requests;
  for (size_t prompt = 0; prompt < generation.prompts.size(); ++prompt) {
    Result<Request> request = openai::make_request(generation, prompt, context.frontend.model());
    if (!request.ok()) {
      return error_response(request.error(), context, "context_length_exceeded");
    }
    requests.push_back(std::move(request).value());
  }
  return PreparedGeneration{std::move(generation), std::move(requests)};
}

std::variant<std::unique_ptr<GenerationJob>, HttpResponse> GenerationJob::submit(
    PreparedGeneration prepared, const Asker& asker, const Destination& destination,
    ApiContext& context) {
  openai::GenerationRequest& generation = prepared.generation;
  std::vector<Request>& requests = prepared.requests;
  if (const Status settled = settle_service(generation, asker, context, requests); !settled.ok()) {
    return refusal(settled.error(), context);
  }
  const bool chat = generation.endpoint == openai::Endpoint::kChat;
  const auto now = context.options.unix_seconds();
  std::unique_ptr<GenerationJob> job(new GenerationJob(
      generation, {(chat ? "chatcmpl-" : "cmpl-") + asker.request_id, now}, context));
  for (size_t prompt = 0; prompt < requests.size(); ++prompt) {
    Request& request = requests[prompt];
    request.external_id = asker.request_id;
    request.tenant = asker.tenant;
    if (!generation.cache_salt.empty()) {
      request.tenant += '/' + generation.cache_salt;
    }
    request.sink = destination.sink;
    request.sink_tag = destination.make_tag(prompt);
    const Submission id = context.frontend.submit(std::move(request));
    if (!id.ok()) {
      // The job's end cancels what was accepted before.
      return id.refusal().reason.empty() ? refusal(id.error(), context)
                                         : refuse(id.refusal(), context);
    }
    job->requests_.push_back(id.value());
  }
  return job;
}

void GenerationJob::take(size_t prompt, std::span<TokenEvent> events, std::string& out) {
  for (const int32_t choice : generation_.take(prompt, events, out)) {
    context_.frontend.stop(requests_[prompt], choice);
  }
}

HttpResponse GenerationJob::answer() {
  if (generation_.error()) {
    return error_response(*generation_.error(), context_);
  }
  return {.body = generation_.body()};
}

}  // namespace tandem::api
