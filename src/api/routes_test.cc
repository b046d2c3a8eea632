#include "api/routes.h"

#include <gtest/gtest.h>

namespace tandem::api {
namespace {

TEST(Routes, PathsAreFound) {
  EXPECT_EQ(find_route("/v1/models")->id, RouteId::kModels);
  EXPECT_EQ(find_route("/v1/models/")->id, RouteId::kModels);
  EXPECT_EQ(find_route("/v1/models/a/b")->id, RouteId::kModel);
  EXPECT_EQ(find_route("/v1/chat/completions")->id, RouteId::kChatCompletions);
  EXPECT_EQ(find_route("/v1/files/")->id, RouteId::kFiles);
  EXPECT_EQ(find_route("/v1/files/a")->id, RouteId::kFile);
  EXPECT_EQ(find_route("/v1/files/content")->id, RouteId::kFile);
  EXPECT_EQ(find_route("/v1/files/a/content")->id, RouteId::kFileContent);
  EXPECT_EQ(find_route("/v1/batches/a/cancel")->id, RouteId::kBatchCancel);
  EXPECT_EQ(id_in_path(*find_route("/v1/files/a%2Db/content"), "/v1/files/a%2Db/content"), "a-b");
  EXPECT_EQ(id_in_path(*find_route("/v1/models/a/b"), "/v1/models/a/b"), "a/b");
  EXPECT_EQ(find_route("/metrics")->path, "/metrics");
  EXPECT_EQ(find_route("/")->id, RouteId::kPage);
  EXPECT_EQ(find_route("//"), nullptr);
  EXPECT_EQ(find_route(""), nullptr);
  EXPECT_EQ(find_route("/v1/model"), nullptr);
  EXPECT_EQ(find_route("/health/x"), nullptr);
}

TEST(Routes, ThePageCanBeSwitchedOff) {
  EXPECT_EQ(find_route("/", {.page = true})->id, RouteId::kPage);
  EXPECT_EQ(find_route("/", {.page = false}), nullptr);
  EXPECT_EQ(find_route("/health", {.page = false})->id, RouteId::kHealth);
}

TEST(Routes, OnlyTheListedMethodsAreTaken) {
  HttpRequest request;
  for (const auto& [method, path, taken] :
       {std::tuple{"GET", "/health", true}, std::tuple{"HEAD", "/health", true},
        std::tuple{"POST", "/health", false}, std::tuple{"POST", "/ping", true},
        std::tuple{"GET", "/ping", true}, std::tuple{"DELETE", "/ping", false},
        std::tuple{"", "/health", false}, std::tuple{"GE", "/ping", false}}) {
    request.method = method;
    EXPECT_EQ(!check_request(request, find_route(path)).has_value(), taken) << method << path;
  }
}

TEST(Routes, EncodedBodiesAreRefusedWithTheCure) {
  HttpRequest request{.method = "POST", .path = "", .query = "", .headers = {}, .body = ""};
  const auto refusal = [&](std::string encoding, std::string_view path = "/v1/completions") {
    request.headers = {{"content-encoding", std::move(encoding)}};
    return check_request(request, find_route(path));
  };
  for (const char* encoding :
       {"gzip", "deflate", "br", "zstd", "GZIP", "identity, gzip", "x\xff"}) {
    const auto response = refusal(encoding);
    ASSERT_TRUE(response.has_value()) << encoding;
    EXPECT_EQ(response->status, 415);
    EXPECT_NE(response->body.find("Content-Encoding"), std::string::npos);
    EXPECT_NE(response->body.find("uncompressed"), std::string::npos);
    EXPECT_NE(response->body.find(R"("code":"unsupported_content_encoding")"), std::string::npos);
  }
  EXPECT_FALSE(refusal("identity").has_value());
  EXPECT_FALSE(refusal("Identity").has_value());
  EXPECT_FALSE(refusal("").has_value());
  EXPECT_FALSE(refusal("gzip", "/ping").has_value()) << "takes no body";
}

TEST(Routes, AnHttpVersionIsTheClientsMistake) {
  const std::string body = error_with_status(505, "m").body;
  EXPECT_NE(body.find(R"("type":"invalid_request_error")"), std::string::npos);
  EXPECT_NE(body.find(R"("code":"http_version_not_supported")"), std::string::npos);
}

}  // namespace
}  // namespace tandem::api
