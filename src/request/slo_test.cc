#include "request/slo.h"

#include <gtest/gtest.h>

#include <limits>

namespace tandem {
namespace {

using namespace std::chrono_literals;

TEST(TtftRule, TheTargetGrowsWithThePromptUpToTheCap) {
  const TtftRule rule = *parse_ttft_rule("500ms+2ms/tok,max=8s");
  EXPECT_EQ(rule.target(10), 500ms);
  EXPECT_EQ(rule.target(1000), 2s);
  EXPECT_EQ(rule.target(100000), 8s);
}

TEST(TtftRule, AConstantIsARule) { EXPECT_EQ(parse_ttft_rule("200ms")->target(5000), 200ms); }

TEST(TtftRule, WrongRulesSayWhatIsWrong) {
  EXPECT_FALSE(parse_ttft_rule("").ok());
  EXPECT_NE(parse_ttft_rule("500ms+2ms").error().message.find("DURATION/tok"), std::string::npos);
  EXPECT_NE(parse_ttft_rule("500ms,cap=3s").error().message.find("max=DURATION"),
            std::string::npos);
  EXPECT_NE(parse_ttft_rule("5").error().message.find("unit"), std::string::npos);
}

TEST(TtftRule, NoTargetIsZeroOrLongerThanADay) {
  for (const char* text :
       {"0", "0ms", "-5ms", "nan", "inf", "1e3s", "0.1ns", "25000min", "1s,max=0", "2s,max=1s",
        "1s+25000min/tok", "1s+-1ms/tok", "1s+2ms/tok,max=25000min", "500ms+2ms/tok,",
        "500ms 2ms/tok", "1s,max=2s,max=3s"}) {
    EXPECT_FALSE(parse_ttft_rule(text).ok()) << text;
  }
  EXPECT_TRUE(parse_ttft_rule("0+2ms/tok").ok());
  EXPECT_EQ(parse_ttft_rule("0+2ms/tok")->target(3), 6ms);
}

TEST(TtftRule, ItsTargetDoesNotOverflow) {
  const TtftRule steep = *parse_ttft_rule("1s+1400min/tok");
  EXPECT_EQ(steep.target(1'000'000'000), Nanos::max());
  EXPECT_EQ(parse_ttft_rule("1s+1400min/tok,max=8s")->target(1'000'000'000), 8s);
  EXPECT_EQ(steep.target(0), 1s);
}

TEST(TtftRule, ItIsWrittenAsItIsRead) {
  for (const char* text : {"500ms", "8s", "1500us", "500ms+2ms/tok", "500ms+2ms/tok,max=8s",
                           "0+3us/tok", "1s,max=1s"}) {
    EXPECT_EQ(format_ttft_rule(*parse_ttft_rule(text)), text);
  }
}

TEST(Slo, TargetsInMillisecondsArePlainNumbers) {
  EXPECT_EQ(*parse_target_millis("500"), 500ms);
  EXPECT_EQ(*parse_target_millis("0.5"), 500us);
  EXPECT_EQ(*target_of_millis(86400000), 24h);
  for (const char* text : {"", "0", "-1", "+5", "nan", "inf", "1e3", "5ms", "0x10", " 5", "5 ",
                           "5,5", "0.0001", "86400001", "99999999999999999999999"}) {
    EXPECT_FALSE(parse_target_millis(text).ok()) << text;
  }
  EXPECT_FALSE(target_of_millis(std::numeric_limits<double>::quiet_NaN()).ok());
  EXPECT_FALSE(target_of_millis(std::numeric_limits<double>::infinity()).ok());
  EXPECT_EQ(*parse_target("50ms"), 50ms);
  EXPECT_FALSE(parse_target("0").ok());
  EXPECT_FALSE(parse_target("50").ok());
}

TEST(Slo, AVerdictIsOfBothTargets) {
  const Slo slo{.ttft = TtftRule{.base = 100ms}, .tpot = 10ms};
  EXPECT_TRUE(judge(slo, 5, {.ttft = 100ms, .first_to_last = 40ms, .output_tokens = 5}).met());
  EXPECT_FALSE(judge(slo, 5, {.ttft = 101ms, .first_to_last = 40ms, .output_tokens = 5}).ttft_kept);
  EXPECT_FALSE(judge(slo, 5, {.ttft = 100ms, .first_to_last = 41ms, .output_tokens = 5}).tpot_kept);
  EXPECT_TRUE(judge(slo, 5, {.ttft = 1ms, .output_tokens = 1}).met()) << "one token has no TPOT";
  EXPECT_FALSE(judge(slo, 5, {}).met()) << "no token came";
  EXPECT_TRUE(judge({}, 5, {}).met());
}

TEST(ServiceClasses, HaveTwoNamesEach) {
  EXPECT_EQ(*parse_service_class("priority"), ServiceClass::kLatencySensitive);
  EXPECT_EQ(*parse_service_class("latency_sensitive"), ServiceClass::kLatencySensitive);
  EXPECT_EQ(*parse_service_class("flex"), ServiceClass::kBestEffort);
  EXPECT_EQ(*parse_service_class("best_effort"), ServiceClass::kBestEffort);
  EXPECT_FALSE(parse_service_class("LS").ok());
}

}  // namespace
}  // namespace tandem
