#include "observe/timeline.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

namespace tandem::observe {
namespace {

Span span_of(int64_t number) {
  return {.name = "op",
          .begin = Nanos{number * 10},
          .end = Nanos{number * 10 + 5},
          .detail = "rows",
          .value = number};
}

TEST(Timeline, ATrackHoldsItsSpansInOrder) {
  Timeline timeline(8);
  Track& track = timeline.add_track("accelerator", "compute");
  for (int64_t i = 0; i < 5; ++i) {
    track.add(span_of(i));
  }
  const std::vector<Span> spans = track.spans();
  ASSERT_EQ(spans.size(), 5U);
  for (size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].value, static_cast<int64_t>(i));
    EXPECT_EQ(spans[i].begin, Nanos{static_cast<int64_t>(i) * 10});
  }
}

TEST(Timeline, AFullTrackForgetsItsOldestSpans) {
  Timeline timeline(8);
  Track& track = timeline.add_track("accelerator", "compute");
  for (int64_t i = 0; i < 100; ++i) {
    track.add(span_of(i));
  }
  const std::vector<Span> spans = track.spans();
  ASSERT_EQ(spans.size(), 8U);
  EXPECT_EQ(spans.front().value, 92);
  EXPECT_EQ(spans.back().value, 99);
}

TEST(Timeline, ATrackMayBeReadWhileItIsWritten) {
  Timeline timeline(16);
  Track& track = timeline.add_track("accelerator", "compute");
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int64_t i = 0; i < 200'000 && !stop.load(); ++i) {
      track.add(span_of(i));
    }
  });
  for (int round = 0; round < 2000; ++round) {
    int64_t last = -1;
    for (const Span& span : track.spans()) {
      ASSERT_EQ(span.begin, Nanos{span.value * 10});  // of one span, not of two
      ASSERT_EQ(span.end, Nanos{span.value * 10 + 5});
      ASSERT_GT(span.value, last);
      last = span.value;
    }
  }
  stop.store(true);
  writer.join();
}

TEST(Timeline, TheTraceIsJsonWithAProcessForEachGroupAndAThreadForEachTrack) {
  Timeline timeline(8);
  Track& compute = timeline.add_track("accelerator", "compute 0");
  Track& worker = timeline.add_track("host \"workers\"", "worker\n0");
  Track& copies = timeline.add_track("accelerator", "to host 1");
  compute.add({.name = "gemm", .begin = Nanos{1'000'500}, .end = Nanos{1'002'000}});
  worker.add({.name = "attend",
              .begin = Nanos{1'000'000},
              .end = Nanos{1'000'001},
              .detail = "tokens",
              .value = 77});
  copies.add({.name = "copy", .begin = Nanos{2'000'000}, .end = Nanos{1'000'000}});
  const auto trace = nlohmann::json::parse(timeline.chrome_trace());
  const auto& events = trace.at("traceEvents");
  ASSERT_EQ(events.size(), 2U + 3U + 3U);
  std::vector<nlohmann::json> spans;
  std::vector<std::string> processes;
  for (const auto& event : events) {
    if (event.at("ph") == "X") {
      spans.push_back(event);
    } else if (event.at("name") == "process_name") {
      processes.push_back(event.at("args").at("name"));
    }
  }
  EXPECT_EQ(processes, (std::vector<std::string>{"accelerator", "host \"workers\""}));
  ASSERT_EQ(spans.size(), 3U);
  EXPECT_EQ(spans[0].at("name"), "gemm");
  EXPECT_DOUBLE_EQ(spans[0].at("ts"), 0.5);  // from the earliest span on, in microseconds
  EXPECT_DOUBLE_EQ(spans[0].at("dur"), 1.5);
  EXPECT_FALSE(spans[0].contains("args"));
  EXPECT_EQ(spans[1].at("args").at("tokens"), 77);
  EXPECT_NE(spans[1].at("pid"), spans[0].at("pid"));
  EXPECT_EQ(spans[2].at("pid"), spans[0].at("pid"));
  EXPECT_NE(spans[2].at("tid"), spans[0].at("tid"));
  EXPECT_DOUBLE_EQ(spans[2].at("dur"), 0.0);
}

TEST(Timeline, AnEmptyOneIsATraceToo) {
  Timeline timeline(1);
  EXPECT_TRUE(nlohmann::json::parse(timeline.chrome_trace()).at("traceEvents").empty());
  timeline.add_track("engine", "binds");
  EXPECT_EQ(nlohmann::json::parse(timeline.chrome_trace()).at("traceEvents").size(), 2U);
}

TEST(Timeline, TheTraceGoesIntoAFile) {
  Timeline timeline(4);
  timeline.add_track("engine", "binds").add(span_of(1));
  const std::filesystem::path file =
      std::filesystem::path(testing::TempDir()) / "tandem_timeline_test.json";
  ASSERT_TRUE(timeline.write_chrome_trace(file).ok());
  std::ifstream in(file);
  EXPECT_EQ(nlohmann::json::parse(in).at("traceEvents").size(), 3U);
  std::filesystem::remove(file);
  const Status failed = timeline.write_chrome_trace("/nowhere/at/all.json");
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.error().message.find("/nowhere/at/all.json"), std::string::npos);
}

}  // namespace
}  // namespace tandem::observe
