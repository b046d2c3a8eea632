#include "api/http_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "request/service.h"

namespace tandem::api {

namespace {

// Methods are the client's text: only known ones become labels.
std::string_view method_label(std::string_view method) {
  constexpr std::array<std::string_view, 7> kKnown = {"GET",    "POST",    "HEAD", "PUT",
                                                      "DELETE", "OPTIONS", "PATCH"};
  return std::ranges::find(kKnown, method) != kKnown.end() ? method : "other";
}

}  // namespace

void HttpMetrics::answered(const AnsweredRequest& request) {
  const std::string handler(request.handler);
  const std::string method(method_label(request.method));
  const double seconds = to_seconds(request.duration);
  const auto bucket = std::ranges::lower_bound(kDurationBuckets, seconds);
  const std::scoped_lock lock(mutex_);
  ++totals_[{handler, method, fmt::format("{}xx", request.status / 100)}];
  Durations& durations = durations_[{handler, method}];
  ++durations.buckets[static_cast<size_t>(bucket - kDurationBuckets.begin())];
  durations.sum_seconds += seconds;
  Sizes& sizes = sizes_[handler];
  ++sizes.count;
  sizes.request_bytes += request.request_bytes;
  sizes.response_bytes += request.response_bytes;
}

void HttpMetrics::rejected(std::string_view reason) {
  const std::scoped_lock lock(mutex_);
  ++rejections_[std::string(reason)];
}

void HttpMetrics::claim_ignored(std::string_view field) {
  const std::scoped_lock lock(mutex_);
  ++ignored_claims_[std::string(field)];
}

std::string HttpMetrics::render() const {
  std::string text;
  auto out = std::back_inserter(text);
  const auto family = [&](std::string_view name, std::string_view type, std::string_view help) {
    fmt::format_to(out, "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  };
  const auto single = [&](std::string_view name, std::string_view type, std::string_view help,
                          int64_t value) {
    family(name, type, help);
    fmt::format_to(out, "{} {}\n", name, value);
  };
  const std::scoped_lock lock(mutex_);
  family("http_requests_total", "counter", "Requests answered, by route, method and status class.");
  for (const auto& [key, count] : totals_) {
    fmt::format_to(out, "http_requests_total{{handler=\"{}\",method=\"{}\",status=\"{}\"}} {}\n",
                   std::get<0>(key), std::get<1>(key), std::get<2>(key), count);
  }
  family("http_request_duration_seconds", "histogram",
         "From the whole request to the end of its answer.");
  for (const auto& [key, durations] : durations_) {
    const std::string labels = fmt::format("handler=\"{}\",method=\"{}\"", key.first, key.second);
    int64_t count = 0;
    for (size_t i = 0; i < durations.buckets.size(); ++i) {
      count += durations.buckets[i];
      const std::string bound =
          i < kDurationBuckets.size() ? fmt::format("{}", kDurationBuckets[i]) : "+Inf";
      fmt::format_to(out, "http_request_duration_seconds_bucket{{{},le=\"{}\"}} {}\n", labels,
                     bound, count);
    }
    fmt::format_to(out, "http_request_duration_seconds_sum{{{}}} {}\n", labels,
                   durations.sum_seconds);
    fmt::format_to(out, "http_request_duration_seconds_count{{{}}} {}\n", labels, count);
  }
  const auto bodies = [&](std::string_view name, std::string_view help, int64_t Sizes::*bytes) {
    family(name, "summary", help);
    for (const auto& [handler, sizes] : sizes_) {
      fmt::format_to(out, "{}_sum{{handler=\"{}\"}} {}\n", name, handler, sizes.*bytes);
      fmt::format_to(out, "{}_count{{handler=\"{}\"}} {}\n", name, handler, sizes.count);
    }
  };
  bodies("http_request_size_bytes", "Bodies of requests.", &Sizes::request_bytes);
  bodies("http_response_size_bytes", "Bodies of answers.", &Sizes::response_bytes);
  family("tandem_http_rejected_total", "counter", "Requests turned away before they ran.");
  for (const auto& [reason, count] : rejections_) {
    fmt::format_to(out, "tandem_http_rejected_total{{reason=\"{}\"}} {}\n", reason, count);
  }
  family("tandem_claims_ignored_total", "counter",
         "Generations that asked for a class, level or target that the policy does not read.");
  for (const std::string_view field : kClaimFields) {
    const auto found = ignored_claims_.find(field);
    fmt::format_to(out, "tandem_claims_ignored_total{{field=\"{}\"}} {}\n", field,
                   found == ignored_claims_.end() ? 0 : found->second);
  }
  single("tandem_http_connections", "gauge", "Connections open now.", connections.load());
  single("tandem_http_generations", "gauge", "Answers being made now.", generations.load());
  single("tandem_http_pending_deliveries", "gauge",
         "Engine steps whose tokens wait for the front end.", pending_deliveries.load());
  single("tandem_http_unsent_bytes", "gauge",
         "Bytes of answers that wait for their readers or, not streamed, are being made.",
         unsent_bytes.load());
  single("tandem_http_disconnect_cancels_total", "counter",
         "Answers ended because the client disconnected.", disconnect_cancels.load());
  single("tandem_http_slow_readers_cut_total", "counter",
         "Connections closed because the client read too slowly.", slow_readers_cut.load());
  single("tandem_http_request_bytes_held", "gauge",
         "Bytes of request bodies that are read and not parsed yet.", request_bytes_held.load());
  single("tandem_http_upload_bytes_held", "gauge",
         "Bytes of uploaded files that are read and not written to the disk yet.",
         upload_bytes_held.load());
  single("tandem_http_requests_timed_out_total", "counter",
         "Requests whose headers or body did not arrive in time.", requests_timed_out.load());
  single("tandem_http_idle_closed_total", "counter",
         "Connections closed because nothing was asked on them.", idle_closed.load());
  single("tandem_http_tls_handshakes_failed_total", "counter",
         "Connections that ended before TLS was agreed on.", tls_handshakes_failed.load());
  return text;
}

}  // namespace tandem::api
