#include "hub/refusal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::hub {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const ModelName kName{.repository = "org/model", .revision = "v1"};

Refusal refusal(int status, std::vector<std::pair<std::string, std::string>> headers = {},
                std::string_view file = "", const HubOptions& options = {}) {
  return explain_status({.status = status, .headers = std::move(headers)}, kName, file, options);
}

TEST(Refusal, SaysWhatToDo) {
  EXPECT_THAT(refusal(401).error.message,
              AllOf(HasSubstr("check the name"), HasSubstr("HF_TOKEN")));
  HubOptions with_token;
  with_token.token = "hf_secret";
  EXPECT_THAT(refusal(401, {}, "", with_token).error.message,
              AllOf(HasSubstr("does not let this token"), Not(HasSubstr("hf_secret"))));
  const Refusal gated = refusal(403, {{"x-error-code", "GatedRepo"},
                                      {"x-error-message", "Access to it is \x1b[31mrestricted"}});
  EXPECT_THAT(gated.error.message,
              AllOf(HasSubstr("https://huggingface.co/org/model"), HasSubstr("HF_TOKEN"),
                    HasSubstr("Access to it is ?[31mrestricted")));
  EXPECT_THAT(refusal(401, {{"x-error-code", "GatedRepo"}}).error.message, HasSubstr("licence"));
  EXPECT_THAT(refusal(403).error.message,
              AllOf(HasSubstr("forbids"), HasSubstr("HF_TOKEN"), Not(HasSubstr("gated:"))));
  EXPECT_THAT(refusal(404).error.message, HasSubstr("has no model 'org/model'"));
  EXPECT_THAT(refusal(404, {{"x-error-code", "RevisionNotFound"}}).error.message,
              HasSubstr("no revision 'v1'"));
  EXPECT_THAT(refusal(404, {}, "config.json").error.message, HasSubstr("config.json"));
  EXPECT_THAT(refusal(418).error.message, HasSubstr("418"));
  for (const int status : {401, 403, 404, 418}) {
    EXPECT_FALSE(refusal(status).retry) << status;
  }
}

TEST(Refusal, OfAnotherServerIsNotTheHubs) {
  const std::string url = "https://cdn.example/x?signature=secret";
  const Refusal expired = explain_status_elsewhere({.status = 403, .headers = {}}, url);
  EXPECT_TRUE(expired.retry) << "the hub signs anew";
  EXPECT_EQ(expired.error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(expired.error.message, AllOf(HasSubstr("status 403 of https://cdn.example:443"),
                                           Not(HasSubstr("licence")), Not(HasSubstr("secret"))));
  EXPECT_FALSE(explain_status_elsewhere({.status = 400, .headers = {}}, url).retry);
}

TEST(Refusal, ACertificateNamesItsCure) {
  const Refusal untrusted =
      explain_failure({.failure = HttpFailure::kUntrusted, .message = "self-signed"}, {});
  EXPECT_THAT(untrusted.error.message, HasSubstr("SSL_CERT_FILE"));
  EXPECT_FALSE(untrusted.retry);
}

TEST(Refusal, SomeStatusesPass) {
  for (const int status : {408, 429, 500, 502, 503, 504}) {
    EXPECT_TRUE(refusal(status).retry) << status;
    EXPECT_EQ(refusal(status).error.code, ErrorCode::kUnavailable);
  }
  EXPECT_EQ(refusal(429, {{"retry-after", "7"}}).retry_after, seconds(7));
  EXPECT_EQ(parse_retry_after("Wed, 21 Oct 2026 07:28:00 GMT"), std::nullopt);
  EXPECT_EQ(parse_retry_after("-1"), std::nullopt);
  EXPECT_EQ(parse_retry_after(""), std::nullopt);
}

TEST(Attempts, WaitLongerEachTimeAndEnd) {
  HubOptions options;
  options.attempts = 4;
  Attempts attempts(options);
  Refusal passing;
  passing.retry = true;
  EXPECT_EQ(attempts.next_pause(passing, false), milliseconds(500));
  EXPECT_EQ(attempts.next_pause(passing, false), milliseconds(1000));
  EXPECT_EQ(attempts.next_pause(passing, false), milliseconds(2000));
  EXPECT_EQ(attempts.next_pause(passing, false), std::nullopt);
}

TEST(Attempts, BytesBeginTheCountAnew) {
  HubOptions options;
  options.attempts = 2;
  Attempts attempts(options);
  Refusal passing;
  passing.retry = true;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(attempts.next_pause(passing, true), milliseconds(500));
  }
  EXPECT_EQ(attempts.next_pause(passing, false), std::nullopt);
}

TEST(Attempts, TheHubSaysHowLongWithinBounds) {
  const HubOptions options;
  Attempts attempts(options);
  Refusal passing;
  passing.retry = true;
  passing.retry_after = seconds(9);
  EXPECT_EQ(attempts.next_pause(passing, false), seconds(9));
  passing.retry_after = std::chrono::hours(1);
  EXPECT_EQ(attempts.next_pause(passing, false), std::nullopt);
  EXPECT_EQ(Attempts(options).next_pause(Refusal{}, true), std::nullopt) << "it does not pass";
}

}  // namespace
}  // namespace tandem::hub
