// What every connection of a server shares. Threads: any; parts say so themselves.
#pragma once

#include <atomic>

#include "api/api_keys.h"
#include "api/client_places.h"
#include "api/cors.h"
#include "api/http_metrics.h"
#include "api/server_options.h"
#include "openai/generation_request.h"
#include "request/frontend.h"

namespace tandem::api {

struct ApiContext {
  ApiContext(ServerOptions server_options, Frontend& served, const TextServices& text_services)
      : options(std::move(server_options)),
        frontend(served),
        places(options.limits.max_connections_per_client),
        keys(options.api_keys),
        cors(options.cors),
        parse{.model = served.model(),
              .tokenizer = text_services.tokenizer,
              .chat_template = text_services.chat_template,
              .defaults = text_services.defaults,
              .limits = options.limits.request,
              .local_time = options.local_time} {}

  const ServerOptions options;
  Frontend& frontend;
  std::unique_ptr<const TlsContext> tls;  // null: connections are plain
  ClientPlaces places;
  ApiKeys keys;
  const Cors cors;
  const openai::ParseContext parse;
  HttpMetrics metrics;
  std::atomic<bool> draining{false};
  std::atomic<int64_t> answering{0};  // connections whose request is being answered
};

}  // namespace tandem::api
