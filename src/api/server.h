// The HTTP server: OpenAI's routes before the front ends of the models that it serves. Sockets live
// on its own threads; callers see none of them. Threads: all functions may be called from any
// thread. Ownership: borrows front ends and text services, which must outlive it; engines may keep
// the TokenSinks of requests longer than the server lives.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/delivery_cost.h"
#include "api/http_metrics.h"
#include "api/server_options.h"
#include "base/result.h"
#include "batches/runner.h"
#include "openai/model_directory.h"

namespace tandem::api {

class Server {
 public:
  // Whether start() would take the options: its errors, except that the port is in use.
  [[nodiscard]] static Status check(const ServerOptions& options);
  // Binds, listens and serves from then on. Errors name the address and what to do (port in use,
  // not allowed, ...).
  [[nodiscard]] static Result<std::unique_ptr<Server>> start(
      ServerOptions options, const std::vector<openai::ModelServices>& models);
  // Ends at once: open answers are cut and cancelled.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] uint16_t port() const;
  [[nodiscard]] const HttpMetrics& metrics() const;
  // Processor time that the I/O threads have used.
  [[nodiscard]] Nanos io_thread_time() const;
  // The most that an I/O thread has done since the last call between the moment when an engine
  // hands over a step and the moment when its events are written. Needs
  // ServerOptions::measure_deliveries.
  DeliveryCost take_longest_delivery();

  // The keys that count from now on; connections stay open.
  void set_api_keys(const std::vector<ApiKey>& keys);
  // The models that it offers.
  [[nodiscard]] const openai::ModelDirectory& models() const;
  // What the batches of this owner may claim; nullopt: its key is none of the server's.
  [[nodiscard]] std::optional<batches::OwnerTerms> terms_of(std::string_view owner) const;
  // Reads the files of the certificate again: new connections get it. An error changes nothing and
  // says what is wrong with the files. Needs TLS.
  Status reload_certificate();
  // How long the certificate is still valid; nullopt without TLS.
  [[nodiscard]] std::optional<std::chrono::hours> certificate_valid_for() const;

  // The first half of a graceful end: new generations get 503 and connections close after their
  // answer. Health routes go on being answered, so that load balancers see the drain.
  void stop_accepting();
  // No answer is being made or sent any more.
  [[nodiscard]] bool drained() const;

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::api
