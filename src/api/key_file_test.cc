#include "api/key_file.h"

#include <gtest/gtest.h>

#include <string>

#include "api/test_files.h"

namespace tandem::api {
namespace {

using namespace std::chrono_literals;

Result<std::vector<ApiKey>> parse(std::string_view text) { return parse_key_file(text, "keys"); }

TEST(KeyFile, OneKeyALineIsEnough) {
  const TempFolder folder;
  const auto keys = read_key_file(folder.write("keys", "# ours\nfirst\n\n  second \r\n"));
  ASSERT_TRUE(keys.ok()) << keys.error().message;
  ASSERT_EQ(keys->size(), 2U);
  EXPECT_EQ(keys->at(0).key, "first");
  EXPECT_EQ(keys->at(1).key, "second");
  EXPECT_EQ(keys->at(1).grant, ServiceGrant{});
  EXPECT_EQ(parse("last-line-without-end")->size(), 1U);
}

TEST(KeyFile, BehindAKeyStandsWhatItGetsAndMayClaim) {
  const auto keys = parse(
      "chat\tclass=priority level=-1 min-level=-2 ttft=500ms+2ms/tok,max=8s tpot=50ms\r\n"
      "batch  max-class=best_effort min-ttft=1s min-tpot=100ms\n");
  ASSERT_TRUE(keys.ok()) << keys.error().message;
  const ServiceGrant& chat = keys->at(0).grant;
  EXPECT_EQ(chat.service_class, ServiceClass::kLatencySensitive);
  EXPECT_EQ(chat.level, -1);
  EXPECT_EQ(chat.least_level, -2);
  EXPECT_EQ(*chat.slo.ttft, (TtftRule{500ms, 2ms, 8s}));
  EXPECT_EQ(chat.slo.tpot, 50ms);
  const ServiceGrant& batch = keys->at(1).grant;
  EXPECT_EQ(batch.best_class, ServiceClass::kBestEffort);
  EXPECT_EQ(*batch.least_ttft, TtftRule{.base = 1s});
  EXPECT_EQ(batch.least_tpot, 100ms);
}

TEST(KeyFile, ErrorsNameLineAndSettingButNoKey) {
  for (const auto& [text, named] :
       {std::pair("ok\nsecret one\n", "line 2"),
        std::pair("secret secret=1\n", "line 1"),
        std::pair("secret class=secret\n", "class"),
        std::pair("secret max-class=\n", "max-class"),
        std::pair("secret level=1.5\n", "level"),
        std::pair("secret level=99999999999\n", "level"),
        std::pair("secret min-level=x\n", "min-level"),
        std::pair("secret ttft=secret\n", "ttft"),
        std::pair("secret ttft=0\n", "ttft"),
        std::pair("secret tpot=-1ms\n", "tpot"),
        std::pair("secret min-ttft=nan\n", "min-ttft"),
        std::pair("secret min-tpot=9\n", "min-tpot"),
        std::pair("secret level=1 level=1\n", "twice"),
        std::pair("secret class=priority max-class=flex\n", "max-class"),
        std::pair("secret level=1 min-level=2\n", "min-level"),
        std::pair("secret tpot=1ms min-tpot=2ms\n", "min-tpot"),
        std::pair("secret\nsecret level=3\n", "lines 1 and 2"),
        std::pair("# nothing\n", "no key"),
        std::pair("s\xc3\xa9"
                  "cret\n",
                  "line 1"),
        std::pair("", "no key")}) {
    const auto keys = parse(text);
    ASSERT_FALSE(keys.ok()) << text;
    const std::string& message = keys.error().message;
    EXPECT_NE(message.find("keys"), std::string::npos) << message;
    EXPECT_NE(message.find(named), std::string::npos) << message;
    EXPECT_EQ(message.find("cret"), std::string::npos) << message;
  }
  EXPECT_FALSE(parse(std::string(5000, 'k')).ok());
  EXPECT_FALSE(read_key_file("/absent/keys").ok());
}

TEST(KeyFile, TheSameLineTwiceIsOneKey) { EXPECT_EQ(parse("a level=1\na level=1\n")->size(), 1U); }

TEST(KeyFile, HasALimitOfKeys) {
  std::string text;
  for (int i = 0; i <= 10000; ++i) {
    text += "k" + std::to_string(i) + "\n";
  }
  EXPECT_NE(parse(text).error().message.find("10000"), std::string::npos);
}

}  // namespace
}  // namespace tandem::api
