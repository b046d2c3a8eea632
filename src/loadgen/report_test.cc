#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <regex>

#include "loadgen/report_html.h"
#include "loadgen/svg_plot.h"

namespace tandem::loadgen {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

struct Run {
  Load load;
  RunResult result;
  RunInfo info;
  [[nodiscard]] std::string html() const {
    return report_html(info, load, result, summarize(load, result));
  }
};

Run run_of(int64_t requests) {
  Run run;
  run.load.groups = {{.name = "chat <b>", .goodput = *parse_goodput({"ttft:20", "tpot:9"})},
                     {.name = "batch"}};
  run.load.models = {"m"};
  run.info.model = "a model & \"more\"";
  run.info.command = "tandem bench serve --label '<script>alert(1)</script>'";
  for (int64_t i = 0; i < requests; ++i) {
    RequestRecord record;
    record.group = static_cast<int32_t>(i % 2);
    record.planned_at = record.due_at = record.sent_at = milliseconds(i * 10);
    record.chunk_times = {milliseconds(i * 10 + 5 + i % 40), milliseconds(i * 10 + 60)};
    record.ended_at = record.chunk_times.back();
    record.outcome = i % 10 == 9 ? Outcome::kFailed : Outcome::kDone;
    record.reason = i % 10 == 9 ? "http_429" : "";
    record.message = "<img alt=x>";
    run.result.records.push_back(record);
  }
  run.result.duration = milliseconds(requests * 10 + 100);
  return run;
}

int64_t occurrences(const std::string& text, const std::string& what) {
  int64_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++count;
  }
  return count;
}

TEST(Report, HasAllPlotsAndTables) {
  const std::string html = run_of(200).html();
  EXPECT_EQ(occurrences(html, "<svg"), 8) << "three over time, three distributions, two of points";
  EXPECT_EQ(occurrences(html, "<svg"), occurrences(html, "</svg>"));
  for (const char* title :
       {"Over time", "Time to first token", "Time per output token", "Time between tokens",
        "Classes", "Failures", "All percentiles", "How this was measured", "target"}) {
    EXPECT_THAT(html, HasSubstr(title));
  }
}

TEST(Report, TextOfOthersIsEscaped) {
  const std::string html = run_of(50).html();
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("<img")));
  EXPECT_THAT(html, HasSubstr("chat &lt;b&gt;"));
  EXPECT_THAT(html, HasSubstr("a model &amp; &quot;more&quot;"));
}

TEST(Report, ASimulatedRunHasNoGenerator) {
  auto run = run_of(50);
  EXPECT_THAT(run.html(), HasSubstr("Lateness of the generator"));
  EXPECT_THAT(run.html(), HasSubstr("Made by tandem bench serve"));
  run.info.backend = "simulated";
  run.info.machine = {{"simulated", "2 x <a100>"}, {"memory_bytes", 1234567}, {"busy", 0.5}};
  run.info.machine["steps_by_kind"]["mixed"] = {{"steps", 1234}, {"time_s", 0.25}};
  run.info.machine["profile"] = {{"virtual_s", 1.5}};
  run.info.machine["profile"]["accuracy"]["table"] = {{"mean", 0.125}};
  const std::string html = run.html();
  EXPECT_THAT(html, Not(HasSubstr("enerator")));
  EXPECT_THAT(html, HasSubstr("Made by tandem simulate"));
  EXPECT_THAT(html, HasSubstr("<td>memory bytes</td><td>1,234,567</td>"));
  EXPECT_THAT(html, HasSubstr("2 x &lt;a100&gt;"));
  EXPECT_THAT(html, HasSubstr("<td>profile virtual s</td><td>1.5</td>"));
  EXPECT_THAT(html, HasSubstr("Profile accuracy</h2>"));
  EXPECT_THAT(html, HasSubstr("Steps by kind"));
  EXPECT_THAT(html, HasSubstr("<tr><th></th><th>steps</th><th>time s</th></tr>"
                              "<tr><td>mixed</td><td>1,234</td><td>0.25</td></tr>"));
}

TEST(Report, NothingIsLoadedFromOutside) {
  const std::string html = run_of(50).html();
  EXPECT_FALSE(std::regex_search(html, std::regex("(src|href)=|@import|url\\(|https?://")));
}

TEST(Report, NoNumberIsNotANumber) {
  for (const int64_t requests : {0, 1, 2, 9}) {
    const std::string html = run_of(requests).html();
    EXPECT_FALSE(std::regex_search(html, std::regex("[^a-z]-?(nan|inf)[^a-z]"))) << requests;
  }
}

TEST(Report, ALongRunIsAPageOfReasonableSize) {
  EXPECT_LT(run_of(50000).html().size(), size_t{600} * 1024);
}

TEST(SvgPlot, NumbersAreShort) {
  EXPECT_EQ(short_millis(0), "0");
  EXPECT_EQ(short_millis(0.0423), "42.3 us");
  EXPECT_EQ(short_millis(7.12345), "7.12 ms");
  EXPECT_EQ(short_millis(12345), "12.3 s");
  EXPECT_EQ(short_count(9500), "9500");
  EXPECT_EQ(short_count(12345), "12.3k");
  EXPECT_EQ(short_count(2.5e6), "2.5M");
  EXPECT_EQ(grouped(1234567), "1,234,567");
  EXPECT_EQ(grouped(12), "12");
}

TEST(SvgPlot, AxesEndAtRoundNumbersAndAreNeverEmpty) {
  EXPECT_DOUBLE_EQ(axis_from_zero(7.3, Unit::kCount).high, 8);
  EXPECT_GT(axis_from_zero(0, Unit::kCount).high, 0);
  const Axis narrow = log_axis(5, 5, Unit::kMillis);
  EXPECT_GT(narrow.high / narrow.low, 3);
  EXPECT_LT(narrow.low, 5);
}

}  // namespace
}  // namespace tandem::loadgen
