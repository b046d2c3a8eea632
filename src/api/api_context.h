// What every connection of a server shares. Threads: any; parts say so themselves.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "api/api_keys.h"
#include "api/client_places.h"
#include "api/cors.h"
#include "api/http_metrics.h"
#include "api/server_options.h"
#include "openai/model_directory.h"

namespace tandem::api {

struct ApiContext {
  ApiContext(ServerOptions server_options, const std::vector<openai::ModelServices>& served)
      : options(std::move(server_options)),
        encrypted(options.tls.wanted()),
        places(options.limits.max_connections_per_client),
        keys(options.api_keys),
        cors(options.cors),
        models(served, options.limits.request, options.local_time) {}

  const ServerOptions options;
  const bool encrypted;  // connections are under TLS
  ClientPlaces places;
  ApiKeys keys;
  const Cors cors;
  const openai::ModelDirectory models;

  // The certificate of new connections; null unless `encrypted`.
  [[nodiscard]] std::shared_ptr<const TlsContext> tls() const {
    const std::scoped_lock lock(tls_mutex_);
    return current_tls_;
  }
  void set_tls(std::shared_ptr<const TlsContext> tls) {
    const std::scoped_lock lock(tls_mutex_);
    current_tls_ = std::move(tls);
  }

  HttpMetrics metrics;
  std::atomic<bool> draining{false};
  std::atomic<int64_t> answering{0};  // connections whose request is being answered

 private:
  mutable std::mutex tls_mutex_;
  std::shared_ptr<const TlsContext> current_tls_;  // guarded by tls_mutex_
};

}  // namespace tandem::api
