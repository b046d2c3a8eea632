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
    EXPECT_EQ(!check_method(request, find_route(path)).has_value(), taken) << method << path;
  }
}

}  // namespace
}  // namespace tandem::api
