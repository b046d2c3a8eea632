// Which request means what, and the answers that need no generation. No sockets. Threads: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/api_context.h"
#include "api/http_message.h"
#include "request/frontend.h"

namespace tandem::api {

enum class RouteId : uint8_t {
  kModels,
  kModel,
  kCompletions,
  kChatCompletions,
  kTokenize,
  kDetokenize,
  kFiles,
  kFileContent,
  kFile,
  kBatches,
  kBatchCancel,
  kBatch,
  kHealth,
  kPing,
  kReady,
  kVersion,
  kLoad,
  kMetrics,
  kConfig,
  kStatus,
  kPage,
};

struct Route {
  RouteId id;
  std::string_view path;     // also the metric label; {id} takes any text
  std::string_view methods;  // "GET", "POST" or more, separated by ", "
};

// nullptr: no such path.
[[nodiscard]] const Route* find_route(std::string_view path);
// The same for a server with these options: --no-ui takes the page away.
[[nodiscard]] const Route* find_route(std::string_view path, const ServerOptions& options);

// Is the client allowed to use this path? An answer (401) if not; `key` is its key.
struct Access {
  std::optional<HttpResponse> refusal;
  std::optional<KeyMatch> key;
};
[[nodiscard]] Access check_access(const HttpRequest& request, const ApiContext& context);

// False: a body is read and thrown away.
[[nodiscard]] bool takes_body(const Route& route);

// 404, 405 or 415, or nullopt if `route` takes such a path, method and encoding of the body. GET
// routes take HEAD too.
[[nodiscard]] std::optional<HttpResponse> check_request(const HttpRequest& request,
                                                        const Route* route);

// What stands for {id} in the path.
[[nodiscard]] std::string id_in_path(const Route& route, std::string_view path);

// The answer of a route that needs neither a generation nor the disk.
[[nodiscard]] HttpResponse answer(const HttpRequest& request, const Route& route,
                                  const ApiContext& context);

[[nodiscard]] HttpResponse error_response(const Error& error, const ApiContext& context,
                                          std::string_view code = {});
[[nodiscard]] HttpResponse error_with_status(int status, std::string_view message);

// Why generations are refused right now ("loading", "draining", "failed"), or "" if some model
// takes them.
[[nodiscard]] std::string_view refusal_reason(const ApiContext& context);
// The same for the model behind `frontend`.
[[nodiscard]] std::string_view refusal_reason(const Frontend& frontend, const ApiContext& context);
// The message of a refusal for this reason.
std::string refusal_message(std::string_view reason, const ApiContext& context);

// An overload or unavailability answer with Retry-After, retry-after-ms and the reason; counted.
[[nodiscard]] HttpResponse refuse(const Error& error, std::string_view reason, ApiContext& context);
// The same of a request that was parsed.
[[nodiscard]] HttpResponse refuse(const Refusal& refusal, ApiContext& context);

}  // namespace tandem::api
