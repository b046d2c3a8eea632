#include "loadgen/headline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace tandem::loadgen {
namespace {

Summary a_summary() {
  Summary summary;
  summary.duration_s = 10;
  summary.all.planned = 5;
  summary.all.done = 4;
  summary.all.output_tokens = 400;
  summary.all.ttft = distribution_of({10, 30});
  summary.groups = {summary.all, summary.all};
  summary.groups[0].name = "chat, fast";
  summary.groups[1].name = "bulk";
  return summary;
}

TEST(Headline, OfAllRequestsAndOfEachClass) {
  const std::vector<Headline> headlines = headlines_of(a_summary());
  const auto value = [&](const std::string& name) {
    const auto found = std::ranges::find(headlines, name, &Headline::name);
    return found == headlines.end() ? -1 : found->value.value_or(-2);
  };
  EXPECT_EQ(value("completed"), 4);
  EXPECT_EQ(value("unfinished"), 1);
  EXPECT_EQ(value("output_tokens_per_s"), 40);
  EXPECT_EQ(value("ttft_p50_ms"), 20);
  EXPECT_EQ(value("tpot_p50_ms"), -2) << "there are no samples";
  EXPECT_EQ(value("bulk.completed"), 4);
  Summary one = a_summary();
  one.groups.pop_back();
  EXPECT_LT(headlines_of(one).size(), headlines.size() / 2) << "a sole class is all requests";
}

TEST(Headline, EnginesAreShownButModelsAreNot) {
  Summary summary = a_summary();
  summary.models = summary.groups;
  summary.models[1].name = "cpu";
  const auto has = [&summary](const std::string& name) {
    return std::ranges::count(headlines_of(summary), name, &Headline::name) > 0;
  };
  EXPECT_FALSE(has("engine cpu.completed"));
  summary.models_are_engines = true;
  EXPECT_TRUE(has("engine cpu.completed"));
  EXPECT_EQ(headline_class(engine_prefix("cpu") + "completed"), "engine cpu");
}

TEST(Headline, CsvHasAHeaderAndARow) {
  EXPECT_EQ(headline_csv({{"a", 1.5}, {"chat, fast.b", std::nullopt}, {"c", 3}}),
            "a,\"chat, fast.b\",c\n1.5,,3\n");
  EXPECT_EQ(headline_csv({{"a", std::nullopt}, {"b", 1}}), "a,b\n,1\n");
  EXPECT_EQ(csv_cell("say \"x\""), "\"say \"\"x\"\"\"");
  EXPECT_EQ(number_text(std::numeric_limits<double>::infinity()), "");
}

TEST(Headline, StylesAreFoundByTheNameWithoutItsClass) {
  EXPECT_EQ(headline_style("chat.v2.ttft_p99_ms").title, "TTFT P99");
  EXPECT_EQ(headline_style("attainment").unit, Unit::kPercent);
  EXPECT_EQ(headline_text(0.995, headline_style("attainment")), "99.5 %");
  EXPECT_EQ(headline_text(265.4, headline_style("ttft_p99_ms")), "265 ms");
  EXPECT_EQ(headline_text(3765.2, headline_style("prompt_tokens_per_s")), "3765");
  EXPECT_EQ(headline_text(std::nullopt, headline_style("steps")), "–");
  EXPECT_EQ(headline_class("chat.v2.ttft_p99_ms"), "chat.v2");
  EXPECT_EQ(headline_class("ttft_p99_ms"), "");
  for (const Headline& headline : headlines_of(a_summary())) {
    EXPECT_NE(headline_style(headline.name).title, headline.name) << "has no title";
  }
}

}  // namespace
}  // namespace tandem::loadgen
