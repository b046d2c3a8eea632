#include "bench/load_progress.h"

#include <gtest/gtest.h>

#include <chrono>

namespace tandem::bench {
namespace {

loadgen::LiveCounts some_counts() {
  loadgen::LiveCounts counts;
  counts.elapsed = std::chrono::seconds(12);
  counts.planned = 60;
  counts.under_way = 5;
  counts.done = 18;
  counts.failed = 2;
  return counts;
}

TEST(LoadProgress, ALineOfCountsAndRates) {
  EXPECT_EQ(progress_text(some_counts(), 1.5, 99.6),
            "20/60 ended, 5 running, 2 failed | 1.5 req/s, 100 tok/s | 12 s");
}

TEST(LoadProgress, TheBarIsTheShareThatHasEnded) {
  EXPECT_EQ(progress_bar(some_counts()), "##########....................");
  EXPECT_EQ(progress_bar({}), "..............................");  // nothing is planned
}

loadgen::GroupSummary group_of(const std::string& name, int64_t done) {
  loadgen::GroupSummary group;
  group.name = name;
  group.done = done;
  group.output_tokens = 10 * done;
  group.ttft = loadgen::distribution_of({10, 20, 30});
  group.tpot = loadgen::distribution_of({1.25});
  return group;
}

TEST(LoadSummary, ShowsTheMetricsThatAreAskedFor) {
  loadgen::Summary summary;
  summary.duration_s = 2;
  summary.all = group_of("all", 4);
  summary.all.reasons["refused"] = 1;
  const std::string text = summary_text(summary, {"ttft"}, {99});
  const auto row = [&](const std::string& name, const std::string& value) {
    std::string line = name;
    line.resize(44, ' ');
    return text.find(line + " " + std::string(14 - value.size(), ' ') + value + "\n") !=
           std::string::npos;
  };
  EXPECT_TRUE(row("Successful requests:", "4")) << text;
  EXPECT_TRUE(row("  refused:", "1")) << text;
  EXPECT_TRUE(row("Request throughput (req/s):", "2.00")) << text;
  EXPECT_TRUE(row("Output token throughput (tok/s):", "20.00")) << text;
  EXPECT_TRUE(row("Median TTFT (ms):", "20.00")) << text;
  EXPECT_EQ(text.find("TPOT"), std::string::npos) << text;
  EXPECT_EQ(text.find("By class"), std::string::npos) << text;  // there is one class
}

TEST(LoadSummary, ClassesStandInATableOfTheirOwn) {
  loadgen::Summary summary;
  summary.duration_s = 2;
  summary.all = group_of("all", 4);
  summary.groups = {group_of("chat", 3), group_of("batch", 1)};
  summary.groups[0].aimed = 4;
  summary.groups[0].aimed_good = 3;
  const std::string text = summary_text(summary, {}, {});
  EXPECT_NE(text.find("\nchat                       3       0      1.50       15.0      20.0"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("75.0 %"), std::string::npos) << text;
}

}  // namespace
}  // namespace tandem::bench
