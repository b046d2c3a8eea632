#include "api/option_table.h"

#include <gtest/gtest.h>

#include <set>

namespace tandem::api {
namespace {

using namespace std::chrono_literals;

const OptionDescriptor& option_named(const OptionTable& table, std::string_view name) {
  const auto found = std::ranges::find(table, name, &OptionDescriptor::name);
  CHECK(found != table.end(), "no option {}", name);
  return *found;
}

std::string set(const OptionTable& table, std::string_view name, const OptionValue& value) {
  const Status status = set_option(option_named(table, name), value);
  return status.ok() ? "" : status.error().message;
}

TEST(ServerOptionTable, EachOptionHasOneNameAHelpAndAGroup) {
  ServerOptions options;
  std::set<std::string> keys;
  for (const OptionDescriptor& option : server_option_table(options)) {
    EXPECT_TRUE(keys.insert(config_key(option)).second) << option.name;
    EXPECT_FALSE(option.help.empty()) << option.name;
    EXPECT_FALSE(option.group.empty()) << option.name;
    EXPECT_EQ(option.recorded, Recorded::kNo) << option.name;
  }
}

TEST(ServerOptionTable, SetsLimitsTargetsAndCertificates) {
  ServerOptions options;
  const OptionTable table = server_option_table(options);
  EXPECT_EQ(set(table, "max-body-size", "1MiB"), "");
  EXPECT_EQ(options.limits.http.max_body_bytes, uint64_t{1} << 20);
  EXPECT_EQ(set(table, "write-timeout", "5s"), "");
  EXPECT_EQ(options.limits.write_timeout, 5s);
  EXPECT_EQ(set(table, "ssl-cert-reqs", "2"), "");
  EXPECT_EQ(options.tls.client_certificates, ClientCertificates::kRequired);
  EXPECT_EQ(set(table, "ttft-slo", "500ms+2ms/tok,max=8s"), "");
  EXPECT_EQ(options.service.slo.ttft, (TtftRule{.base = 500ms, .per_token = 2ms, .cap = 8s}));
  EXPECT_EQ(option_text(option_named(table, "ttft-slo")), "500ms+2ms/tok,max=8s");
  EXPECT_EQ(set(table, "tpot-slo", "50ms"), "");
  EXPECT_EQ(options.service.slo.tpot, 50ms);
  EXPECT_EQ(set(table, "default-class", "flex"), "");
  EXPECT_EQ(option_text(option_named(table, "default-class")), "best_effort");
  EXPECT_EQ(set(table, "overload-status", "503"), "");
  EXPECT_EQ(options.errors.overload_status, 503);
  EXPECT_EQ(set(table, "allowed-origins", std::vector<std::string>{"https://a"}), "");
  EXPECT_EQ(options.cors.allowed_origins, (std::vector<std::string>{"https://a"}));
}

TEST(ServerOptionTable, ObjectivesAreShownAsTheyWereGiven) {
  ServerOptions options;
  const OptionTable table = server_option_table(options);
  const std::vector<std::string> given = {"chat level=-1 tpot=50ms", "night class=flex"};
  EXPECT_EQ(set(table, "objective", given), "");
  ASSERT_EQ(options.objectives.size(), 2U);
  EXPECT_EQ(options.objectives.front().gives.level, -1);
  EXPECT_EQ(option_named(table, "objective").value.get(), OptionValue(given));
  EXPECT_EQ(set(table, "objective", std::vector<std::string>{"a", "a"}),
            "--objective: 'a' is there twice; keep one");
  EXPECT_EQ(options.objectives.size(), 2U);
}

TEST(ServerOptionTable, WrongValuesNameTheFlag) {
  ServerOptions options;
  const OptionTable table = server_option_table(options);
  for (const auto& [name, value] :
       {std::pair("port", "65536"), std::pair("max-connections", "0"), std::pair("ttft-slo", "500"),
        std::pair("tpot-slo", "25h"), std::pair("default-class", "gold"),
        std::pair("overload-status", "200"), std::pair("ssl-cert-reqs", "3"),
        std::pair("idle-timeout", "75"), std::pair("max-answer-bytes", "much")}) {
    EXPECT_TRUE(set(table, name, value).starts_with(std::string("--") + name + ": ")) << name;
  }
}

TEST(ServerOptionTable, KeysAreSecretAndFilesShowTheirLastName) {
  ServerOptions options;
  const OptionTable table = server_option_table(options);
  EXPECT_TRUE(option_named(table, "api-key").secret);
  EXPECT_EQ(set(table, "api-key-file", "/etc/tandem/keys"), "");
  EXPECT_EQ(option_named(table, "api-key-file").value.get(), OptionValue("keys"));
}

}  // namespace
}  // namespace tandem::api
