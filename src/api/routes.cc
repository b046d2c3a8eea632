#include "api/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "api/page.h"
#include "base/percent_encoding.h"
#include "openai/error_body.h"
#include "openai/json_output.h"
#include "openai/token_routes.h"

namespace tandem::api {

namespace {

constexpr std::array<Route, 21> kRoutes = {{
    {RouteId::kModels, "/v1/models", "GET"},
    {RouteId::kModel, "/v1/models/{id}", "GET"},
    {RouteId::kCompletions, "/v1/completions", "POST"},
    {RouteId::kChatCompletions, "/v1/chat/completions", "POST"},
    {RouteId::kTokenize, "/tokenize", "POST"},
    {RouteId::kDetokenize, "/detokenize", "POST"},
    {RouteId::kFiles, "/v1/files", "GET, POST"},
    {RouteId::kFileContent, "/v1/files/{id}/content", "GET"},
    {RouteId::kFile, "/v1/files/{id}", "GET, DELETE"},
    {RouteId::kBatches, "/v1/batches", "GET, POST"},
    {RouteId::kBatchCancel, "/v1/batches/{id}/cancel", "POST"},
    {RouteId::kBatch, "/v1/batches/{id}", "GET"},
    {RouteId::kHealth, "/health", "GET"},
    {RouteId::kPing, "/ping", "GET, POST"},
    {RouteId::kReady, "/ready", "GET"},
    {RouteId::kVersion, "/version", "GET"},
    {RouteId::kLoad, "/load", "GET"},
    {RouteId::kMetrics, "/metrics", "GET"},
    {RouteId::kConfig, "/v1/tandem/config", "GET"},
    {RouteId::kStatus, "/v1/tandem/status", "GET"},
    {RouteId::kPage, "/", "GET"},
}};
constexpr std::string_view kAnyId = "{id}";

std::string_view state_name(ServingState state) {
  switch (state) {
    case ServingState::kLoading:
      return "loading";
    case ServingState::kReady:
      return "ready";
    case ServingState::kDraining:
      return "draining";
    case ServingState::kFailed:
      break;
  }
  return "failed";
}

// The state of one model, as clients of this server see it.
ServingState state_of(const Frontend& frontend, const ApiContext& context) {
  const ServingState state = frontend.state();
  return state == ServingState::kReady && context.draining ? ServingState::kDraining : state;
}

// How far a state is from ready.
int distance(ServingState state) {
  switch (state) {
    case ServingState::kReady:
      return 0;
    case ServingState::kDraining:
      return 1;
    case ServingState::kLoading:
      return 2;
    case ServingState::kFailed:
      break;
  }
  return 3;
}

// The state of the server: that of the model which is furthest from ready.
ServingState state_of(const ApiContext& context) {
  ServingState worst = ServingState::kReady;
  for (const openai::OfferedModel& model : context.models.models()) {
    const ServingState state = state_of(model.frontend, context);
    worst = distance(state) > distance(worst) ? state : worst;
  }
  return worst;
}

HttpResponse of_result(Result<std::string> body, const ApiContext& context,
                       std::string_view code_if_missing) {
  if (!body.ok()) {
    const bool missing = body.error().code == ErrorCode::kNotFound;
    return error_response(body.error(), context, missing ? code_if_missing : "");
  }
  return {.body = std::move(body).value()};
}

// The failure of the first model that has failed; empty if none has.
std::string failure_of(const ApiContext& context) {
  for (const openai::OfferedModel& model : context.models.models()) {
    if (std::string reason = model.frontend.failure(); !reason.empty()) {
      return reason;
    }
  }
  return {};
}

HttpResponse ready(const ApiContext& context, ServingState state) {
  HttpResponse response{.status = state == ServingState::kReady ? 200 : 503,
                        .body = fmt::format(R"({{"status":"{}")", state_name(state))};
  if (const std::string reason = failure_of(context); !reason.empty()) {
    response.body += R"(,"reason":)";
    openai::append_untrusted_string(response.body, reason);
  }
  response.body += '}';
  return response;
}

HttpResponse health(const ApiContext& context, ServingState state) {
  const bool alive = state == ServingState::kReady || state == ServingState::kDraining;
  if (alive) {
    return {.content_type = "", .body = ""};
  }
  const std::string reason = failure_of(context);
  return error_response(
      {ErrorCode::kUnavailable,
       fmt::format("the server {} {}{}{}", state == ServingState::kFailed ? "has" : "is",
                   state_name(state), reason.empty() ? "" : ": ", reason),
       ""},
      context);
}

HttpResponse load(const ApiContext& context) {
  FrontendLoad load;
  for (const openai::OfferedModel& model : context.models.models()) {
    const FrontendLoad own = model.frontend.load();
    load.running += own.running;
    load.waiting += own.waiting;
  }
  return {.body = fmt::format(R"({{"server_load":{},"running":{},"waiting":{}}})",
                              load.running + load.waiting, load.running, load.waiting)};
}

HttpResponse metrics(const ApiContext& context) {
  HttpResponse response{.content_type = "text/plain; version=0.0.4; charset=utf-8"};
  for (const auto& provider : context.options.metrics) {
    response.body += provider();
  }
  response.body += context.metrics.render();
  return response;
}

// "version" and "commit", as members of an object.
std::string version_members(const ApiContext& context) {
  std::string members = R"("version":)";
  openai::append_untrusted_string(members, context.options.version);
  if (!context.options.commit.empty()) {
    members += R"(,"commit":)";
    openai::append_untrusted_string(members, context.options.commit);
  }
  return members;
}

HttpResponse status(const ApiContext& context, ServingState state) {
  const ServerOptions& options = context.options;
  HttpResponse response{
      .body = fmt::format(R"({{"state":"{}",{},"connections":{},"answers":{},"models":{},)"
                          R"("process":{}}})",
                          state_name(state), version_members(context),
                          context.metrics.connections.load(), context.metrics.generations.load(),
                          options.models_json ? options.models_json() : "[]",
                          options.process_json ? options.process_json() : "{}")};
  response.headers.emplace_back("Cache-Control", "no-store");
  return response;
}

// A queue that knows when to come back says "retry after 1500ms" (or "2s") in its message.
Nanos retry_after_of(std::string_view message, Nanos if_absent) {
  constexpr std::string_view kWords = "retry after ";
  constexpr int64_t kLongest = 24 * 3600;
  const size_t at = message.find(kWords);
  if (at == std::string_view::npos) {
    return if_absent;
  }
  const std::string_view rest = message.substr(at + kWords.size());
  int64_t count = 0;
  const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), count);
  if (parsed.ec != std::errc() || count < 0 || count > kLongest) {
    return if_absent;
  }
  const std::string_view unit = rest.substr(static_cast<size_t>(parsed.ptr - rest.data()));
  if (unit.starts_with("ms")) {
    return std::chrono::milliseconds(count);
  }
  return unit.starts_with("s") ? Nanos(std::chrono::seconds(count)) : if_absent;
}

// Counts it and adds the headers. Who should not come back is not told when.
HttpResponse refuse_with(const Refusal& refusal, HttpResponse response, ApiContext& context) {
  context.metrics.rejected(refusal.reason);
  if (refusal.retry_after) {
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(*refusal.retry_after);
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(wait).count();
    response.headers.emplace_back("Retry-After", fmt::format("{}", std::max<int64_t>(1, seconds)));
    response.headers.emplace_back("retry-after-ms", fmt::format("{}", wait.count()));
  }
  response.headers.emplace_back("x-should-retry",
                                refusal.retry == Refusal::Retry::kUseless ? "false" : "true");
  response.headers.emplace_back("x-llm-d-request-dropped-reason", refusal.reason);
  return response;
}

}  // namespace

const Route* find_route(std::string_view path) {
  for (const Route& route : kRoutes) {
    if (const size_t id = route.path.find(kAnyId); id != std::string_view::npos) {
      const std::string_view front = route.path.substr(0, id);
      const std::string_view back = route.path.substr(id + kAnyId.size());
      if (path.starts_with(front) && path.ends_with(back) &&
          path.size() > front.size() + back.size()) {
        return &route;
      }
    } else if (path == route.path || (route.path != "/" && path.size() == route.path.size() + 1 &&
                                      path.ends_with('/') && path.starts_with(route.path))) {
      return &route;
    }
  }
  return nullptr;
}

const Route* find_route(std::string_view path, const ServerOptions& options) {
  const Route* route = find_route(path);
  return route != nullptr && route->id == RouteId::kPage && !options.page ? nullptr : route;
}

Access check_access(const HttpRequest& request, const ApiContext& context) {
  Access access;
  if (!context.keys.required()) {
    return access;
  }
  access.key = context.keys.match(request.header("authorization"));
  const bool guarded = request.path == "/v1" || request.path.starts_with("/v1/") ||
                       request.path.starts_with("/tokenize") ||
                       request.path.starts_with("/detokenize");
  if (guarded && !access.key) {
    access.refusal = error_response(
        {ErrorCode::kUnauthenticated,
         request.header("authorization").empty()
             ? "an API key is needed; send the header 'Authorization: Bearer KEY'"
             : "the API key is not known; check the header 'Authorization: Bearer KEY'",
         ""},
        context);
    access.refusal->headers.emplace_back("WWW-Authenticate", "Bearer");
  }
  return access;
}

std::string id_in_path(const Route& route, std::string_view path) {
  const size_t front = route.path.find(kAnyId);
  const size_t around = route.path.size() - kAnyId.size();
  // Model names may hold slashes, which some clients escape.
  return percent_decode(path.substr(front, path.size() - around));
}

bool takes_body(const Route& route) {
  return route.id == RouteId::kCompletions || route.id == RouteId::kChatCompletions ||
         route.id == RouteId::kTokenize || route.id == RouteId::kDetokenize ||
         route.id == RouteId::kFiles || route.id == RouteId::kBatches;
}

namespace {

// A body that is compressed, or encoded otherwise.
std::optional<HttpResponse> check_encoding(const HttpRequest& request) {
  constexpr size_t kShownBytes = 40;
  for (const auto& [name, value] : request.headers) {
    if (name == "content-encoding" && !value.empty() && lower(value) != "identity") {
      return error_with_status(
          415, fmt::format("the body has Content-Encoding '{}', which this server does not decode; "
                           "send the body uncompressed, without Content-Encoding",
                           std::string_view(value).substr(0, kShownBytes)));
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<HttpResponse> check_request(const HttpRequest& request, const Route* route) {
  if (route == nullptr) {
    return error_with_status(404,
                             "there is no such path; see /v1/models, /v1/completions, "
                             "/v1/chat/completions, /v1/files, /v1/batches");
  }
  const std::string_view method =
      request.method == "HEAD" ? std::string_view("GET") : std::string_view(request.method);
  constexpr std::string_view kComma = ", ";
  bool listed = false;
  for (std::string_view rest = route->methods; !rest.empty() && !listed;) {
    const std::string_view known = rest.substr(0, rest.find(kComma));
    listed = method == known;
    rest.remove_prefix(std::min(known.size() + kComma.size(), rest.size()));
  }
  if (listed) {
    return takes_body(*route) ? check_encoding(request) : std::nullopt;
  }
  HttpResponse response =
      error_with_status(405, fmt::format("{} takes {} only", route->path, route->methods));
  response.headers.emplace_back("Allow", route->methods);
  return response;
}

HttpResponse answer(const HttpRequest& request, const Route& route, const ApiContext& context) {
  const ServingState state = state_of(context);
  switch (route.id) {
    case RouteId::kModels:
      return {.body = openai::model_list(context.models)};
    case RouteId::kModel: {
      return of_result(openai::model_card(id_in_path(route, request.path), context.models), context,
                       "model_not_found");
    }
    case RouteId::kTokenize:
      return of_result(openai::tokenize(request.body, context.models), context, "model_not_found");
    case RouteId::kDetokenize:
      return of_result(openai::detokenize(request.body, context.models), context,
                       "model_not_found");
    case RouteId::kHealth:
    case RouteId::kPing:
      return health(context, state);
    case RouteId::kReady:
      return ready(context, state);
    case RouteId::kVersion:
      return {.body = "{" + version_members(context) + "}"};
    case RouteId::kLoad:
      return load(context);
    case RouteId::kMetrics:
      return metrics(context);
    case RouteId::kConfig:
      return {.body = context.options.config_json ? context.options.config_json() : "{}"};
    case RouteId::kStatus:
      return status(context, state);
    case RouteId::kPage:
      return page_response();
    case RouteId::kCompletions:
    case RouteId::kChatCompletions:
    case RouteId::kFiles:
    case RouteId::kFileContent:
    case RouteId::kFile:
    case RouteId::kBatches:
    case RouteId::kBatchCancel:
    case RouteId::kBatch:
      break;
  }
  CHECK(false, "route {} is answered elsewhere", route.path);
}

HttpResponse error_response(const Error& error, const ApiContext& context, std::string_view code) {
  return {.status = openai::http_status(error.code, context.options.errors),
          .body = openai::error_body(error, code)};
}

HttpResponse error_with_status(int status, std::string_view message) {
  ErrorCode error = status >= 500 ? ErrorCode::kUnavailable : ErrorCode::kInvalidArgument;
  std::string_view code;  // empty: the error's own
  switch (status) {
    case 404:
      error = ErrorCode::kNotFound;
      break;
    case 405:
      code = "method_not_allowed";
      break;
    case 413:
      error = ErrorCode::kPayloadTooLarge;
      break;
    case 415:
      code = "unsupported_content_encoding";
      break;
    case 505:
      error = ErrorCode::kInvalidArgument;
      code = "http_version_not_supported";
      break;
    default:
      break;
  }
  return {.status = status, .body = openai::error_body({error, std::string(message), ""}, code)};
}

std::string_view refusal_reason(const ApiContext& context) {
  std::string_view reason;
  for (const openai::OfferedModel& model : context.models.models()) {
    const std::string_view own = refusal_reason(model.frontend, context);
    if (own.empty()) {
      return "";
    }
    reason = reason.empty() ? own : reason;
  }
  return reason;
}

std::string refusal_message(std::string_view reason, const ApiContext& context) {
  const std::string failure = failure_of(context);
  return failure.empty()
             ? fmt::format("the server is {} and takes no requests for text now", reason)
             : fmt::format("the server has failed and takes no requests for text: {}", failure);
}

std::string_view refusal_reason(const Frontend& frontend, const ApiContext& context) {
  const ServingState state = state_of(frontend, context);
  return state == ServingState::kReady ? "" : state_name(state);
}

HttpResponse refuse(const Error& error, std::string_view reason, ApiContext& context) {
  Refusal refusal;
  refusal.error = error;
  refusal.reason = reason;
  refusal.retry_after = retry_after_of(error.message, context.options.retry_after);
  if (reason == "failed") {
    refusal.retry = Refusal::Retry::kUseless;
  }
  return refuse_with(refusal, error_response(error, context), context);
}

HttpResponse refuse(const Refusal& refusal, ApiContext& context) {
  return refuse_with(
      refusal,
      {.status = openai::http_status(refusal.error.code, context.options.errors),
       .body = openai::error_body(refusal.error, refusal.reason,
                                  {refusal.ttft, refusal.ttft_target, refusal.retry_after})},
      context);
}

}  // namespace tandem::api
