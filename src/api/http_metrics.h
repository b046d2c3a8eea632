// Counts of the HTTP server, in Prometheus' text format under the names that dashboards know. Any
// thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>

#include "base/clock.h"

namespace tandem::api {

// One answered request. `handler` is a route ("/v1/models/{id}") or "none", never what the client
// typed.
struct AnsweredRequest {
  std::string_view handler;
  std::string_view method;
  int status = 0;
  Nanos duration{0};
  int64_t request_bytes = 0;
  int64_t response_bytes = 0;
};

class HttpMetrics {
 public:
  void answered(const AnsweredRequest& request);
  // Turned away before it ran: "queue_full", "loading", "draining", "failed", "connections".
  void rejected(std::string_view reason);
  // A request named this service field (kClaimFields), which the policy does not read.
  void claim_ignored(std::string_view field);

  std::atomic<int64_t> connections{0};         // open now
  std::atomic<int64_t> generations{0};         // answers being made now
  std::atomic<int64_t> pending_deliveries{0};  // steps that engines handed over, still unread
  std::atomic<int64_t> unsent_bytes{0};        // unsent output, whole answers being made included
  std::atomic<int64_t> disconnect_cancels{0};  // generations ended because their client left
  std::atomic<int64_t> slow_readers_cut{0};
  std::atomic<int64_t> request_bytes_held{0};     // of bodies that are read and not parsed yet
  std::atomic<int64_t> upload_bytes_held{0};      // of uploads, not on the disk yet
  std::atomic<int64_t> requests_timed_out{0};     // answered 408
  std::atomic<int64_t> idle_closed{0};            // connections closed because nothing came
  std::atomic<int64_t> tls_handshakes_failed{0};  // connections that ended before keys were agreed

  [[nodiscard]] std::string render() const;

 private:
  static constexpr std::array<double, 10> kDurationBuckets = {0.005, 0.01, 0.05, 0.1, 0.5,
                                                              1,     5,    10,   60,  300};
  struct Sizes {
    int64_t count = 0;
    int64_t request_bytes = 0;
    int64_t response_bytes = 0;
  };
  struct Durations {
    std::array<int64_t, kDurationBuckets.size() + 1> buckets{};  // the last one: above all bounds
    double sum_seconds = 0;
  };

  mutable std::mutex mutex_;  // guards what follows
  std::map<std::tuple<std::string, std::string, std::string>, int64_t> totals_;
  std::map<std::pair<std::string, std::string>, Durations> durations_;
  std::map<std::string, Sizes> sizes_;
  std::map<std::string, int64_t> rejections_;
  std::map<std::string, int64_t, std::less<>> ignored_claims_;
};

}  // namespace tandem::api
