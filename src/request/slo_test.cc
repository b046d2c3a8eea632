#include "request/slo.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tandem
