#include "sim/sweep_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

namespace tandem::sim {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Sweep two_keys() {
  Sweep sweep{
      .scenario = "s<1>.yaml", .made_by = "tandem 1", .keys = {"policy", "rate"}, .points = {}};
  int number = 0;
  for (const char* policy : {"a, b", "<c>"}) {
    for (const char* rate : {"10", "2"}) {
      ++number;
      sweep.points.push_back({.name = std::to_string(number),
                              .values = {policy, rate},
                              .headlines = {{"completed", 10.0 * number},
                                            {"ttft_p99_ms", 1.5 * number},
                                            {"chat.attainment", 0.5},
                                            {"compute_busy", 0.25}},
                              .failure = {}});
    }
  }
  return sweep;
}

int64_t occurrences(const std::string& text, const std::string& what) {
  int64_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++count;
  }
  return count;
}

TEST(SweepReport, CsvHasALineForEachPoint) {
  Sweep sweep = two_keys();
  sweep.points[1].failure = "exit code 1: <b>no</b>";
  sweep.points[1].headlines.clear();
  EXPECT_EQ(sweep_csv(sweep),
            "policy,rate,completed,ttft_p99_ms,chat.attainment,compute_busy\n"
            "\"a, b\",10,10,1.5,0.5,0.25\n"
            "\"a, b\",2,,,,\n"
            "<c>,10,30,4.5,0.5,0.25\n"
            "<c>,2,40,6,0.5,0.25\n");
  const nlohmann::ordered_json json = sweep_json(sweep);
  EXPECT_EQ(json["points"][2]["values"]["rate"], "10");
  EXPECT_EQ(json["points"][2]["headline"]["completed"], 30);
  EXPECT_EQ(json["points"][1]["failure"], "exit code 1: <b>no</b>");
  EXPECT_THAT(sweep_text(sweep), HasSubstr("failed"));
  EXPECT_THAT(sweep_page(sweep).html, HasSubstr("exit code 1: &lt;b&gt;no"));
}

TEST(SweepReport, NumbersRunAlongThePlotsWhicheverKeyHasThem) {
  const std::string html = sweep_page(two_keys()).html;
  EXPECT_EQ(occurrences(html, "<svg"), 3) << "a plot for each number but that of requests";
  EXPECT_EQ(occurrences(html, "<path class=\"line"), 6) << "a line for each policy";
  EXPECT_EQ(occurrences(html, "class=\"bar"), 0);
  EXPECT_THAT(html, HasSubstr("TTFT P99 over rate"));
  EXPECT_THAT(html, Not(HasSubstr("<c>")));
  EXPECT_THAT(html, HasSubstr("Class chat"));
}

TEST(SweepReport, WordsHaveBars) {
  Sweep sweep = two_keys();
  sweep.keys.pop_back();
  sweep.points.erase(sweep.points.begin() + 1);
  sweep.points.pop_back();
  for (SweptPoint& point : sweep.points) {
    point.values.pop_back();
  }
  const std::string html = sweep_page(sweep).html;
  EXPECT_EQ(occurrences(html, "<rect class=\"bar"), 6);
  EXPECT_EQ(occurrences(html, "<path class=\"line"), 0);
}

TEST(SweepReport, NothingToPlotIsNoPlot) {
  Sweep sweep = two_keys();
  for (SweptPoint& point : sweep.points) {
    point.headlines = {{"failed", 0}, {"ttft_p99_ms", std::nullopt}};
  }
  const std::string html = sweep_page(sweep).html;
  EXPECT_EQ(occurrences(html, "<svg"), 0);
  EXPECT_FALSE(std::regex_search(html, std::regex("nan|inf[^i]|src=|https?://")));
}

TEST(SweepReport, PlotsAreFilesToo) {
  const loadgen::ReportPage page = sweep_page(two_keys());
  ASSERT_EQ(page.plots.size(), 3U);
  EXPECT_EQ(page.plots[0].name, "ttft_p99_ms.svg");
  EXPECT_EQ(page.plots[1].name, "chat.attainment.svg");
  EXPECT_THAT(page.plots[1].svg, HasSubstr("chat: In target"));
  EXPECT_THAT(page.plots[1].svg, HasSubstr("&lt;c&gt;"));
}

TEST(SweepReport, BandsAreDrawnAndListed) {
  Sweep sweep = two_keys();
  EXPECT_EQ(sweep_band_csv(sweep), "");
  for (SweptPoint& point : sweep.points) {
    point.band = {.share = 0.2,
                  .low = {{"ttft_p99_ms", *point.headlines[1].value + 1}},
                  .high = {{"ttft_p99_ms", *point.headlines[1].value - 1}}};
  }
  const std::string html = sweep_page(sweep).html;
  EXPECT_EQ(occurrences(html, "<path class=\"band"), 2) << "TTFT alone moves";
  EXPECT_THAT(html, HasSubstr("from 0.8 to 1.2 times"));
  EXPECT_THAT(sweep_band_csv(sweep),
              HasSubstr("policy,rate,host_bandwidth_factor,completed,ttft_p99_ms,"));
  EXPECT_THAT(sweep_band_csv(sweep), HasSubstr("<c>,2,0.8,,7,,\n<c>,2,1,40,6,0.5,0.25\n"));
  EXPECT_EQ(sweep_json(sweep)["points"][0]["host_band"]["share"], 0.2);
  for (SweptPoint& point : sweep.points) {
    point.values[1] = "x" + point.values[1];
  }
  EXPECT_EQ(occurrences(sweep_page(sweep).html, "class=\"whisker\""), 4);
}

}  // namespace
}  // namespace tandem::sim
