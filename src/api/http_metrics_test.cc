#include "api/http_metrics.h"

#include <gtest/gtest.h>

#include "api/access_log.h"

namespace tandem::api {
namespace {

TEST(HttpMetrics, CountsByRouteMethodAndStatusClass) {
  HttpMetrics metrics;
  metrics.answered({.handler = "/health",
                    .method = "GET",
                    .status = 200,
                    .duration = std::chrono::milliseconds(20),
                    .request_bytes = 1,
                    .response_bytes = 2});
  metrics.answered({.handler = "/health", .method = "GET", .status = 204});
  metrics.answered({.handler = "none", .method = "BREW\"", .status = 404});
  metrics.rejected("queue_full");
  const std::string text = metrics.render();
  for (const char* line :
       {"http_requests_total{handler=\"/health\",method=\"GET\",status=\"2xx\"} 2\n",
        "http_requests_total{handler=\"none\",method=\"other\",status=\"4xx\"} 1\n",
        "http_request_duration_seconds_bucket{handler=\"/health\",method=\"GET\",le=\"0.01\"} 1\n",
        "http_request_duration_seconds_bucket{handler=\"/health\",method=\"GET\",le=\"0.05\"} 2\n",
        "http_request_duration_seconds_bucket{handler=\"/health\",method=\"GET\",le=\"+Inf\"} 2\n",
        "http_request_duration_seconds_count{handler=\"/health\",method=\"GET\"} 2\n",
        "http_request_size_bytes_sum{handler=\"/health\"} 1\n",
        "http_response_size_bytes_sum{handler=\"/health\"} 2\n",
        "http_response_size_bytes_count{handler=\"/health\"} 2\n",
        "tandem_http_rejected_total{reason=\"queue_full\"} 1\n",
        "tandem_http_disconnect_cancels_total 0\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

HttpRequest request_with(std::vector<std::pair<std::string, std::string>> headers) {
  HttpRequest request;
  request.headers = std::move(headers);
  return request;
}

TEST(AccessLog, TheClientsIdsAreKeptWhenTheyArePlain) {
  const RequestNames names = names_of(
      request_with({{"x-request-id", "abc-1"},
                    {"x-correlation-id", "corr"},
                    {"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}),
      "made");
  EXPECT_EQ(names.request_id, "abc-1");
  EXPECT_EQ(names.correlation_id, "corr");
  EXPECT_EQ(names.trace_id, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(names_of(request_with({{"x-request-id", "a b"}}), "made").request_id, "made");
  EXPECT_EQ(names_of(request_with({{"x-request-id", "a\nb"}}), "made").request_id, "made");
  EXPECT_EQ(names_of(request_with({{"x-request-id", std::string(129, 'a')}}), "made").request_id,
            "made");
  for (const char* bad : {"00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-xyz",
                          "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                          "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}) {
    EXPECT_EQ(names_of(request_with({{"traceparent", bad}}), "made").trace_id, "") << bad;
  }
}

TEST(AccessLog, OneLineHoldsNoForgedFields) {
  const std::string line =
      access_line(access_fields({.method = "GET",
                                 .path = "/a b\nstatus=200",
                                 .client = "127.0.0.1:5",
                                 .status = 404,
                                 .duration = std::chrono::milliseconds(1500),
                                 .prompt_tokens = 7,
                                 .completion_tokens = {}},
                                {.request_id = "r", .correlation_id = "", .trace_id = "t"}));
  EXPECT_EQ(line,
            "access method=GET path=/a?b?status=200 status=404 outcome=done duration_ms=1500.0 "
            "client=127.0.0.1:5 request_id=r trace_id=t prompt_tokens=7");
}

}  // namespace
}  // namespace tandem::api
