#include "hub/http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

namespace tandem::hub {
namespace {

using ::testing::HasSubstr;

TEST(Origin, IsSchemeHostAndPort) {
  EXPECT_EQ(origin_of("https://Hub.example/a?b"), "https://hub.example:443");
  EXPECT_EQ(origin_of("http://127.0.0.1:8080/"), "http://127.0.0.1:8080");
  for (const char* other : {"", "hub.example", "file:///etc/passwd", "ftp://hub.example/",
                            "https://user:secret@hub.example/", "https://"}) {
    EXPECT_EQ(origin_of(other), "") << other;
  }
}

TEST(Origin, OfThisMachineAreItsNameAndAddresses) {
  for (const char* own : {"http://127.0.0.1:8000/v1", "https://127.9.9.9", "http://LOCALHOST",
                          "http://[::1]:80/", "http://a.localhost/"}) {
    EXPECT_TRUE(is_loopback(own)) << own;
  }
  for (const char* other :
       {"http://127.0.0.1.example/", "http://128.0.0.1", "https://localhost.example",
        "http://[::2]/", "http://127.0.0.1@hub.example/", "x", ""}) {
    EXPECT_FALSE(is_loopback(other)) << other;
  }
}

TEST(Redirection, IsResolvedAgainstTheAddressBefore) {
  const std::string base = "https://hub.example/org/model/resolve/main/a";
  const auto to = [&](const char* location) {
    const Result<std::string> target = redirected(base, location);
    return target.ok() ? *target : "error: " + target.error().message;
  };
  EXPECT_EQ(to("/api/x"), "https://hub.example/api/x");
  EXPECT_EQ(to("https://cdn.example/x?y=z"), "https://cdn.example/x?y=z");
  EXPECT_EQ(to("//cdn.example/x"), "https://cdn.example/x");
  EXPECT_EQ(to("b"), "https://hub.example/org/model/resolve/main/b");
  EXPECT_THAT(to("http://cdn.example/x"), HasSubstr("without encryption"));
  EXPECT_THAT(to("file:///etc/passwd"), HasSubstr("not of http"));
  EXPECT_THAT(to("https://user@cdn.example/"), HasSubstr("not of http"));
  EXPECT_THAT(to(""), HasSubstr("not of http"));
  EXPECT_TRUE(redirected("http://127.0.0.1:1/a", "http://127.0.0.1:2/b").ok());
}

TEST(Urls, ArePercentEncoded) {
  EXPECT_EQ(url_part("refs/pr/1"), "refs%2Fpr%2F1");
  EXPECT_EQ(url_path("a b/c.d"), "a%20b/c.d");
  EXPECT_EQ(url_part("\xC3\xA9?#"), "%C3%A9%3F%23");
}

TEST(HttpHead, NamesAreFoundInLowerCase) {
  const HttpHead head{.status = 200, .headers = {{"etag", "x"}, {"etag", "y"}}};
  EXPECT_EQ(head.header("etag"), "x");
  EXPECT_EQ(head.header("location"), "");
}

class Ignoring final : public HttpListener {
 public:
  bool on_head(const HttpHead&) override { return true; }
  bool on_body(std::string_view) override { return true; }
};

TEST(HttpClient, WhereNothingListensIsAFailureThatMayPass) {
  ::setenv("no_proxy", "127.0.0.1", 1);
  HttpClient client({});
  Ignoring listener;
  // Port 1 of this machine: nothing listens there.
  const HttpOutcome outcome =
      client.perform({.url = "http://127.0.0.1:1/"}, listener, [] { return false; });
  EXPECT_NE(outcome.failure, HttpFailure::kNone);
  EXPECT_TRUE(outcome.retry);
  EXPECT_FALSE(outcome.message.empty());
}

TEST(HttpClient, OtherSchemesAreRefused) {
  HttpClient client({});
  Ignoring listener;
  const HttpOutcome outcome =
      client.perform({.url = "file:///etc/hostname"}, listener, [] { return false; });
  EXPECT_EQ(outcome.failure, HttpFailure::kConnect);
  EXPECT_FALSE(outcome.retry);
}

}  // namespace
}  // namespace tandem::hub
