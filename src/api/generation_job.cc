#include "api/generation_job.h"

#include <utility>

#include "api/objectives.h"
#include "api/routes.h"
#include "api/service_headers.h"

namespace tandem::api {

namespace {

// `state`: why the model, or the server, refuses generations now; empty: it takes them.
HttpResponse refusal(const Error& error, std::string_view state, ApiContext& context) {
  switch (error.code) {
    case ErrorCode::kOverloaded:
      return refuse(error, "queue_full", context);
    case ErrorCode::kUnavailable:
    case ErrorCode::kResourceExhausted:
      return refuse(error, state.empty() ? "unavailable" : state, context);
    case ErrorCode::kNotFound:
      return error_response(error, context, "model_not_found");
    case ErrorCode::kForbidden:
      return error_response(error, context, "class_not_allowed");
    default:
      return error_response(error, context);
  }
}

// Class, level and SLO: of the body, the headers, the objective, the key and the server.
Status settle_terms(const Asker& asker, ApiContext& context, PreparedGeneration& prepared) {
  const ServerOptions& options = context.options;
  ASSIGN_OR_RETURN(const ServiceClaim headers, claim_of_headers(asker.request));
  ASSIGN_OR_RETURN(const ServiceGrant grant,
                   grant_for(asker.request, asker.grant, options.objectives));
  openai::GenerationRequest& generation = prepared.generation;
  const ServiceClaim claim = claim_over(generation.service, headers);
  RETURN_IF_ERROR(
      openai::settle_service(claim, grant, options.service, generation, prepared.requests));
  const std::vector<std::string_view> ignored =
      ignored_fields(claim, prepared.model->parse.model.reads);
  generation.honoured = ignored.empty();
  for (const std::string_view field : ignored) {
    context.metrics.claim_ignored(field);
  }
  return {};
}

}  // namespace

GenerationJob::GenerationJob(openai::Generation generation, openai::PromptSubmission submission,
                             ApiContext& context)
    : context_(context), generation_(std::move(generation)), submission_(std::move(submission)) {
  ++context_.metrics.generations;
}

GenerationJob::~GenerationJob() { end(); }

// Cancels prompts that have not ended; cancel() ignores the others.
void GenerationJob::end() {
  if (!std::exchange(counted_, false)) {
    return;
  }
  if (!generation_.ended() || generation_.error()) {
    submission_.cancel();
  }
  --context_.metrics.generations;
}

size_t PreparedGeneration::prompt_bytes() const {
  size_t bytes = 0;
  for (const Request& request : requests) {
    bytes += request.prompt.size() * sizeof(TokenId);
  }
  for (const std::string& text : generation.prompt_texts) {
    bytes += text.size();
  }
  return bytes;
}

Preparation GenerationJob::prepare(openai::Endpoint endpoint, std::string_view body,
                                   ApiContext& context) {
  Result<openai::RoutedGeneration> parsed =
      openai::parse_generation(endpoint, body, context.models);
  if (!parsed.ok()) {
    return refusal(parsed.error(), refusal_reason(context), context);
  }
  Result<std::vector<Request>> requests =
      openai::make_requests(parsed->request, parsed->model->parse.model);
  if (!requests.ok()) {
    return error_response(requests.error(), context, "context_length_exceeded");
  }
  return PreparedGeneration{parsed->model, std::move(parsed->request), std::move(requests).value()};
}

SubmittedGeneration GenerationJob::submit(PreparedGeneration prepared, const Asker& asker,
                                          const Destination& destination, ApiContext& context) {
  Frontend& frontend = prepared.model->frontend;
  if (const Status settled = settle_terms(asker, context, prepared); !settled.ok()) {
    return refusal(settled.error(), refusal_reason(frontend, context), context);
  }
  const openai::GenerationRequest& generation = prepared.generation;
  openai::Generation answer(generation,
                            {.id = openai::answer_id(generation.endpoint, asker.request_id),
                             .created_unix_seconds = context.options.unix_seconds()},
                            prepared.model->parse.tokenizer);
  auto submitted = openai::PromptSubmission::submit(
      generation, std::move(prepared.requests),
      {.request_id = asker.request_id,
       .tenant = asker.tenant,
       .sink = destination.sink,
       .make_tag = [&](size_t prompt) { return destination.tags[prompt]; }},
      frontend);
  if (const auto* refused = std::get_if<Refusal>(&submitted)) {
    return refused->reason.empty()
               ? refusal(refused->error, refusal_reason(frontend, context), context)
               : refuse(*refused, context);
  }
  return std::unique_ptr<GenerationJob>(new GenerationJob(
      std::move(answer), std::get<openai::PromptSubmission>(std::move(submitted)), context));
}

void GenerationJob::take(size_t prompt, std::span<TokenEvent> events, std::string& out) {
  for (const int32_t choice : generation_.take(prompt, events, out)) {
    submission_.stop(prompt, choice);
  }
}

HttpResponse GenerationJob::answer() {
  if (generation_.error()) {
    return error_response(*generation_.error(), context_);
  }
  return {.body = generation_.body()};
}

}  // namespace tandem::api
