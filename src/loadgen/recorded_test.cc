#include "loadgen/recorded.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loadgen/url.h"

namespace tandem::loadgen {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(RecordedCommand, CredentialsAreHiddenInEveryForm) {
  const std::vector<std::vector<std::string>> forms = {
      {"--api-key", "S3CRET"},
      {"--api-key=S3CRET"},
      {"--header", "api-key: S3CRET"},
      {"--header", "X-Api-Key: S3CRET"},
      {"--header", "authorization: S3CRET"},
      {"--header", "Authorization: Bearer S3CRET"},
      {"--header=Authorization: Bearer S3CRET"},
      {"--header=Authorization:S3CRET"},
      {"--header", "Proxy-Authorization: Basic S3CRET", "Cookie: S3CRET"},
      {"--header", "S3CRET"},
      {"--extra-body", R"({"api_key":"S3CRET"})"},
      {R"(--extra-body={"a":{"list":[{"accessToken":"S3CRET"}]}})"},
      {"--extra-body", R"({"x":1,"credentials":{"user":"S3CRET"}})"},
      {"--extra-body", "not json S3CRET"},
      {"--stream", "name=a;header=X-Api-Key: S3CRET;request-rate=4"},
      {"--stream=header=Authorization: S3CRET"},
      {"--base-url", "http://user:S3CRET@host:8000/v1"},
      {"--base-url=https://S3CRET@host"},
      {"--base-url", "http://user:p/w@S3CRET@host"},
      {"--base-url", "http://user:S3CRET/x?#@host"},
  };
  for (const std::vector<std::string>& form : forms) {
    std::vector<std::string> arguments = {"tandem", "bench", "serve"};
    arguments.insert(arguments.end(), form.begin(), form.end());
    arguments.insert(arguments.end(), {"--seed", "7"});
    const std::string command = recorded_command(arguments);
    EXPECT_THAT(command, Not(HasSubstr("S3CRET"))) << command;
    EXPECT_THAT(command, HasSubstr("...")) << command;
    EXPECT_TRUE(command.starts_with("tandem bench serve ")) << command;
    EXPECT_TRUE(command.ends_with(" --seed 7")) << command;
  }
}

TEST(RecordedCommand, EverythingElseIsThereAsAShellReadsIt) {
  EXPECT_EQ(recorded_command({"tandem", "bench", "serve", "--label", "it's", "--goodput", "ttft:5",
                              "tpot:9", "--report", "", "--result-dir", "a b", "--duration=$x"}),
            R"(tandem bench serve --label 'it'\''s' --goodput ttft:5 tpot:9 --report '' )"
            R"(--result-dir 'a b' '--duration=$x')");
  EXPECT_EQ(recorded_command({"--header", "X-Route: blue", "--stream", "name=a;;mix=x"}),
            "--header 'X-Route: ...' --stream 'name=a;;mix=x'");
  EXPECT_EQ(recorded_value("extra-body", R"({"max_tokens":5,"stop_token_ids":[1],"min_p":0.1})"),
            R"({"max_tokens":5,"stop_token_ids":[1],"min_p":0.1})");
  EXPECT_EQ(recorded_value("base-url", "http://host:8000/v1"), "http://host:8000/v1");
}

TEST(Recorded, SecretsThatAServerRepeatsAreHidden) {
  const std::string headers =
      "Authorization: Bearer S3CRET-1\r\nX-Route: somewhere\r\nX-Api-Key: S3CRET-2\r\nCookie: "
      "a\r\n";
  EXPECT_EQ(without_secrets("no key 'S3CRET-1' (S3CRET-2S3CRET-1) at somewhere, a cookie", headers),
            "no key '...' (......) at somewhere, a cookie");
  EXPECT_EQ(without_secrets("text", ""), "text");
}

TEST(Url, AUserInTheAddressIsRefusedWithoutSayingThePassword) {
  for (const char* text : {"http://user:S3CRET@host", "http://user:S3CRET@host:8000/v1",
                           "https://S3CRET@[::1]:80", "ftp://user:S3CRET@host"}) {
    const Result<Url> url = parse_url(text);
    ASSERT_FALSE(url.ok()) << text;
    EXPECT_THAT(url.error().message, Not(HasSubstr("S3CRET")));
  }
  EXPECT_THAT(parse_url("http://user:pw@host").error().message, HasSubstr("--header"));
  EXPECT_TRUE(parse_url("http://host:8000/@v1").ok());
}

}  // namespace
}  // namespace tandem::loadgen
