#include "api/cors.h"

#include <gtest/gtest.h>

namespace tandem::api {
namespace {

HttpRequest preflight_from(const char* origin, const char* method) {
  HttpRequest request;
  request.method = "OPTIONS";
  request.headers = {{"origin", origin},
                     {"access-control-request-method", method},
                     {"access-control-request-headers", "authorization"}};
  return request;
}

std::string header(const std::vector<std::pair<std::string, std::string>>& headers,
                   std::string_view name) {
  for (const auto& [known, value] : headers) {
    if (known == name) {
      return value;
    }
  }
  return "";
}

TEST(Cors, AllOriginsAreAllowedByDefault) {
  const Cors cors({});
  const HttpRequest request = preflight_from("http://a", "POST");
  const auto answer = cors.preflight(request);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, 200);
  EXPECT_NE(header(answer->headers, "Access-Control-Allow-Methods").find("POST"),
            std::string::npos);
  EXPECT_EQ(header(answer->headers, "Access-Control-Allow-Headers"), "authorization");
  EXPECT_EQ(header(cors.headers(request), "Access-Control-Allow-Origin"), "*");
}

TEST(Cors, ListsAreKept) {
  const Cors cors({.allowed_origins = {"http://a"},
                   .allowed_methods = {"GET"},
                   .allowed_headers = {"x-one"},
                   .credentials = CorsCredentials::kAllowed});
  EXPECT_EQ(cors.preflight(preflight_from("http://b", "GET"))->status, 400);
  EXPECT_EQ(cors.preflight(preflight_from("http://a", "POST"))->status, 400);
  const auto answer = cors.preflight(preflight_from("http://a", "GET"));
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(header(answer->headers, "Access-Control-Allow-Headers"), "x-one");
  const auto headers = cors.headers(preflight_from("http://a", "GET"));
  EXPECT_EQ(header(headers, "Access-Control-Allow-Origin"), "http://a");
  EXPECT_EQ(header(headers, "Access-Control-Allow-Credentials"), "true");
  EXPECT_EQ(header(headers, "Vary"), "Origin");
  EXPECT_TRUE(cors.headers(preflight_from("http://b", "GET")).empty());
}

TEST(Cors, CredentialsNameTheOriginInsteadOfAStar) {
  const Cors cors({.credentials = CorsCredentials::kAllowed});
  EXPECT_EQ(header(cors.headers(preflight_from("http://a", "GET")), "Access-Control-Allow-Origin"),
            "http://a");
}

TEST(Cors, OtherRequestsAreNoPreflight) {
  HttpRequest plain = preflight_from("http://a", "GET");
  plain.method = "GET";
  EXPECT_FALSE(Cors({}).preflight(plain).has_value());
  HttpRequest no_origin;
  no_origin.method = "OPTIONS";
  EXPECT_FALSE(Cors({}).preflight(no_origin).has_value());
  EXPECT_TRUE(Cors({}).headers(no_origin).empty());
  EXPECT_FALSE(Cors({.allowed_origins = {}}).preflight(preflight_from("http://a", "GET")));
}

}  // namespace
}  // namespace tandem::api
