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

TEST(Cors, AllOriginsAreAllowedByDefaultWhereKeysAreNeeded) {
  const Cors cors({});
  const HttpRequest request = preflight_from("http://a", "POST");
  const auto answer = cors.preflight(request, true);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, 200);
  EXPECT_NE(header(answer->headers, "Access-Control-Allow-Methods").find("POST"),
            std::string::npos);
  EXPECT_EQ(header(answer->headers, "Access-Control-Allow-Headers"), "authorization");
  EXPECT_EQ(header(cors.headers(request, true), "Access-Control-Allow-Origin"), "*");
}

TEST(Cors, WithoutKeysOnlyPagesOfThisMachineAreAllowed) {
  const Cors cors({});
  for (const char* origin :
       {"http://localhost", "http://localhost:3000", "https://app.localhost:8443",
        "http://127.0.0.1:5173", "http://127.8.9.1", "http://[::1]", "http://[::1]:9"}) {
    const HttpRequest request = preflight_from(origin, "POST");
    EXPECT_EQ(cors.preflight(request, false)->status, 200) << origin;
    EXPECT_EQ(header(cors.headers(request, false), "Access-Control-Allow-Origin"), origin);
    EXPECT_EQ(header(cors.headers(request, false), "Vary"), "Origin");
  }
  for (const char* origin : {"http://evil.example", "null", "http://localhost.evil.example",
                             "http://127.0.0.1.evil.example", "http://evillocalhost",
                             "http://[::1].evil.example", "localhost"}) {
    const HttpRequest request = preflight_from(origin, "POST");
    const auto refused = cors.preflight(request, false);
    EXPECT_EQ(refused->status, 400) << origin;
    EXPECT_NE(refused->body.find("--allowed-origins"), std::string::npos);
    EXPECT_TRUE(cors.headers(request, false).empty()) << origin;
  }
  const Cors all({.allowed_origins = std::vector<std::string>{"*"}});
  EXPECT_EQ(
      header(all.headers(preflight_from("http://a", "GET"), false), "Access-Control-Allow-Origin"),
      "*")
      << "what the operator asks for holds";
}

TEST(Cors, ListsAreKept) {
  const Cors cors({.allowed_origins = std::vector<std::string>{"http://a"},
                   .allowed_methods = {"GET"},
                   .allowed_headers = {"x-one"},
                   .allow_credentials = true});
  EXPECT_EQ(cors.preflight(preflight_from("http://b", "GET"), true)->status, 400);
  EXPECT_EQ(cors.preflight(preflight_from("http://a", "POST"), true)->status, 400);
  const auto answer = cors.preflight(preflight_from("http://a", "GET"), true);
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(header(answer->headers, "Access-Control-Allow-Headers"), "x-one");
  const auto headers = cors.headers(preflight_from("http://a", "GET"), true);
  EXPECT_EQ(header(headers, "Access-Control-Allow-Origin"), "http://a");
  EXPECT_EQ(header(headers, "Access-Control-Allow-Credentials"), "true");
  EXPECT_EQ(header(headers, "Vary"), "Origin");
  EXPECT_TRUE(cors.headers(preflight_from("http://b", "GET"), true).empty());
}

TEST(Cors, CredentialsNameTheOriginInsteadOfAStar) {
  const Cors cors({.allow_credentials = true});
  EXPECT_EQ(
      header(cors.headers(preflight_from("http://a", "GET"), true), "Access-Control-Allow-Origin"),
      "http://a");
}

TEST(Cors, PagesMayReadTheHeadersThatClientsNeed) {
  for (const bool credentials : {false, true}) {
    const auto headers =
        Cors({.allow_credentials = credentials}).headers(preflight_from("http://a", "GET"), true);
    const std::string exposed = header(headers, "Access-Control-Expose-Headers");
    for (const char* name : {"Retry-After", "retry-after-ms", "x-should-retry",
                             "x-llm-d-request-dropped-reason", "X-Request-Id"}) {
      EXPECT_NE(exposed.find(name), std::string::npos) << name;
    }
  }
}

TEST(Cors, OtherRequestsAreNoPreflight) {
  HttpRequest plain = preflight_from("http://a", "GET");
  plain.method = "GET";
  EXPECT_FALSE(Cors({}).preflight(plain, true).has_value());
  HttpRequest no_origin;
  no_origin.method = "OPTIONS";
  EXPECT_FALSE(Cors({}).preflight(no_origin, true).has_value());
  EXPECT_TRUE(Cors({}).headers(no_origin, true).empty());
  const Cors off({.allowed_origins = std::vector<std::string>{}});
  EXPECT_FALSE(off.preflight(preflight_from("http://localhost", "GET"), true));
}

}  // namespace
}  // namespace tandem::api
