#include "loadgen/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loadgen/result_json.h"

namespace tandem::loadgen {
namespace {

using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::HasSubstr;

RequestRecord done(int64_t sent_ms, std::vector<int64_t> chunks_ms) {
  RequestRecord record;
  record.planned_at = record.due_at = record.sent_at = milliseconds(sent_ms);
  for (const int64_t at : chunks_ms) {
    record.chunk_times.push_back(milliseconds(at));
  }
  record.ended_at = record.chunk_times.back();
  record.outcome = Outcome::kDone;
  record.status = 200;
  record.planned_input_tokens = 10;
  record.planned_output_tokens = static_cast<int32_t>(chunks_ms.size());
  record.usage = TokenUsage{10, static_cast<int64_t>(chunks_ms.size()), 0};
  return record;
}

RequestRecord failed(int64_t sent_ms, std::string reason) {
  RequestRecord record;
  record.planned_at = record.due_at = record.sent_at = milliseconds(sent_ms);
  record.ended_at = milliseconds(sent_ms + 1);
  record.outcome = Outcome::kFailed;
  record.reason = std::move(reason);
  record.message = "because";
  return record;
}

Load load_of(size_t requests) {
  Load load;
  load.groups = {{.name = "chat", .goodput = *parse_goodput({"ttft:100", "tpot:20"})}};
  load.models = {"m"};
  load.requests.resize(requests);
  return load;
}

RunResult run_of(std::vector<RequestRecord> records, int64_t duration_ms) {
  RunResult run;
  run.records = std::move(records);
  run.duration = milliseconds(duration_ms);
  return run;
}

TEST(Statistics, PercentilesAreInterpolatedAsNumpyDoes) {
  const Distribution values = distribution_of({4, 1, 3, 2});
  EXPECT_DOUBLE_EQ(values.at(50), 2.5);
  EXPECT_DOUBLE_EQ(values.at(25), 1.75);
  EXPECT_DOUBLE_EQ(values.at(99), 3.97);
  EXPECT_DOUBLE_EQ(values.at(0), 1);
  EXPECT_DOUBLE_EQ(values.at(100), 4);
  EXPECT_DOUBLE_EQ(values.mean, 2.5);
  EXPECT_NEAR(values.deviation, 1.118033988, 1e-9);
  EXPECT_EQ(distribution_of({}).at(50), 0);
}

TEST(Summary, LatenciesAreThoseOfTheirDefinitions) {
  // First token after 50 ms, then gaps of 10 and 30 ms.
  const Summary summary = summarize(load_of(1), run_of({done(1000, {1050, 1060, 1090})}, 2000));
  EXPECT_DOUBLE_EQ(summary.all.ttft.at(50), 50);
  EXPECT_DOUBLE_EQ(summary.all.tpot.at(50), 20);
  EXPECT_DOUBLE_EQ(summary.all.itl.most(), 30);
  EXPECT_DOUBLE_EQ(summary.all.e2el.at(50), 90);
  EXPECT_EQ(summary.all.good, 1);
  EXPECT_DOUBLE_EQ(summary.per_second(summary.all.output_tokens), 1.5);
}

TEST(Summary, TokensThatShareAChunkCountInTpotByTheServersCount) {
  RequestRecord record = done(0, {50, 90});
  record.usage->completion_tokens = 5;
  EXPECT_DOUBLE_EQ(to_millis(*record.tpot()), 10);
}

TEST(Summary, GoodputNeedsEveryTarget) {
  const Summary summary = summarize(
      load_of(3), run_of({done(0, {50, 60}), done(0, {150, 160}), done(0, {50, 90})}, 1000));
  EXPECT_EQ(summary.groups[0].good, 1);
}

TEST(Summary, AttainmentIsOfThoseThatHaveTargets) {
  Load load = load_of(4);
  load.groups.push_back({.name = "filler"});
  RequestRecord filler = done(0, {150, 160});
  filler.group = 1;
  const RunResult run =
      run_of({done(0, {50, 60}), failed(1, "closed"), filler, RequestRecord{}}, 1000);
  const Summary summary = summarize(load, run);
  EXPECT_EQ(summary.groups[1].attainment_percent(), std::nullopt);
  EXPECT_EQ(summary.all.aimed, 2) << "neither without targets nor never sent";
  EXPECT_EQ(summary.all.attainment_percent(), 50);
}

TEST(Summary, AnswersToTasksAreJudgedByAbilityAndClass) {
  AnswerTask four{.id = "a-0", .ability = "add", .messages = {}, .expected = ExpectedNumber{4}};
  AnswerTask word{
      .id = "c-0", .ability = "copy", .messages = {}, .expected = ExpectedText{{"fox"}}};
  Load load = load_of(5);
  load.groups.push_back({.name = "batch"});
  std::vector<RequestRecord> records = {done(0, {50, 60}), done(0, {50, 60}), done(0, {50, 60}),
                                        failed(0, "cut"), done(0, {50, 60})};
  records[0].task = records[1].task = records[3].task = &four;
  records[0].answer = "2 + 2 = 4";
  records[1].answer = "5";
  records[1].group = 1;
  records[2].task = &word;
  records[2].answer = " fox";
  for (RequestRecord& record : records) {
    record.planned_input_tokens = record.task == nullptr ? 10 : 0;
  }
  const RunResult run = run_of(std::move(records), 1000);
  const Summary summary = summarize(load, run);
  EXPECT_EQ(summary.all.answers.judged, 3) << "what failed is not judged";
  EXPECT_EQ(summary.all.answers.right, 2);
  EXPECT_EQ(summary.groups[1].answers.right, 0);
  EXPECT_EQ(summary.all.other_inputs, 0);
  ASSERT_EQ(summary.abilities.size(), 2U);
  EXPECT_EQ(summary.abilities[0].name, "add");
  EXPECT_DOUBLE_EQ(summary.abilities[0].all.percent(), 50);
  EXPECT_EQ(summary.abilities[0].groups[0].right, 1);
  EXPECT_EQ(summary.abilities[0].wrong_id, "a-0");
  EXPECT_EQ(summary.abilities[0].wrong_answer, "5");
  const nlohmann::ordered_json json =
      result_json({}, load, run, summary, Detail::kRequests)["tandem"];
  EXPECT_EQ(json["tasks"][0]["name"], "add");
  EXPECT_EQ(json["tasks"][0]["classes"]["batch"]["right"], 0);
  EXPECT_EQ(json["tasks"][0]["wrong_example"]["answer"], "5");
  EXPECT_EQ(json["requests"][2]["right"], true);
  EXPECT_FALSE(json["requests"][4].contains("right"));
}

TEST(Summary, FailuresAreCountedByReasonAndInterruptedOnesAreNone) {
  RequestRecord cut = failed(5, "");
  cut.outcome = Outcome::kInterrupted;
  RunResult run = run_of({done(0, {5}), failed(1, "http_429"), failed(2, "http_429"),
                          failed(3, "closed"), cut, RequestRecord{}},
                         100);
  run.interrupted = true;
  const Summary summary = summarize(load_of(6), run);
  EXPECT_EQ(summary.all.failed, 3);
  EXPECT_EQ(summary.all.reasons.at("http_429"), 2);
  EXPECT_EQ(summary.all.interrupted, 1);
  EXPECT_EQ(summary.all.sent, 5);
  EXPECT_THAT(summary.warnings, Contains(HasSubstr("ended early")));
}

TEST(Summary, WhatTheEndOfTheRunCutOffHasNotMissedItsTargets) {
  RequestRecord cut = failed(5, "");
  cut.outcome = Outcome::kInterrupted;
  const Summary summary = summarize(
      load_of(4), run_of({done(0, {50, 60}), failed(1, "closed"), cut, RequestRecord{}}, 100));
  EXPECT_EQ(summary.all.sent, 3);
  EXPECT_EQ(summary.all.aimed, 2);
  EXPECT_EQ(summary.all.attainment_percent(), 50);
}

TEST(Summary, WhatTheEndOfTheRunCutOffBeyondItsTargetsHasMissedThem) {
  Load load = load_of(4);
  load.groups[0].goodput = {.ttft = TtftRule{.base = milliseconds(60)}, .tpot = milliseconds(10)};
  const auto cut = [](int64_t sent, std::vector<int64_t> chunks, int64_t ended) {
    RequestRecord record = chunks.empty() ? failed(sent, "") : done(sent, std::move(chunks));
    record.outcome = Outcome::kInterrupted;
    record.finish_at.reset();
    record.usage.reset();
    record.planned_output_tokens = 5;
    record.ended_at = milliseconds(ended);
    return record;
  };
  const Summary summary =
      summarize(load, run_of({done(0, {50, 60}), cut(0, {}, 61), cut(50, {}, 100),
                              cut(0, {50, 55}, 91), cut(0, {50, 55}, 90), cut(0, {61}, 62)},
                             100));
  EXPECT_EQ(summary.all.interrupted, 5);
  EXPECT_EQ(summary.all.aimed, 4) << "no first token, tokens that are late, a late first token";
  EXPECT_EQ(summary.all.aimed_good, 1);
}

TEST(Summary, RowsThatATraceLeftOutAreNamed) {
  Load load = load_of(1);
  EXPECT_TRUE(summarize(load, run_of({done(0, {5, 6})}, 10)).warnings.empty());
  load.skipped_rows = 3;
  EXPECT_THAT(summarize(load, run_of({done(0, {5, 6})}, 10)).warnings,
              Contains(HasSubstr("3 rows of the trace")));
}

TEST(Summary, ArrivalsThatTheRunNeverCameToAreInNoSlice) {
  RequestRecord never;
  never.planned_at = milliseconds(2000);
  const Summary summary =
      summarize(load_of(4), run_of({done(0, {50, 60}), done(900, {950, 960}), never, never}, 1000));
  int64_t planned = 0;
  for (const TimelineSlice& slice : summary.timeline) {
    planned += slice.planned;
    EXPECT_LE(slice.planned, 1);
  }
  EXPECT_EQ(planned, 2);
  EXPECT_EQ(summary.all.planned, 4);
}

TEST(Summary, TheClosingChunkCountsWhereTheServerCountsItsEndToken) {
  // Three tokens with text at 10, 20 and 30 ms, the end token's chunk at 40 ms.
  RequestRecord counted = done(0, {10, 20, 30});
  counted.finish_at = milliseconds(40);
  counted.usage->completion_tokens = 4;
  counted.count_closing_chunk();
  EXPECT_DOUBLE_EQ(to_millis(*counted.tpot()), 10);
  EXPECT_EQ(counted.chunk_times.size(), 4U);
  EXPECT_DOUBLE_EQ(to_millis(counted.e2el()), 40);
  RequestRecord not_counted = done(0, {10, 20, 30});
  not_counted.finish_at = milliseconds(40);
  not_counted.count_closing_chunk();
  EXPECT_DOUBLE_EQ(to_millis(*not_counted.tpot()), 10);
  EXPECT_EQ(not_counted.chunk_times.size(), 3U);
  EXPECT_DOUBLE_EQ(to_millis(not_counted.e2el()), 40) << "the answer had not ended before";
  // The last token's text came with the finish.
  RequestRecord together = done(0, {10, 20, 30});
  together.finish_at = milliseconds(30);
  together.usage->completion_tokens = 5;
  together.count_closing_chunk();
  EXPECT_EQ(together.chunk_times.size(), 3U);
}

TEST(Summary, TheTimelineHoldsEveryRequestAndChunkOnce) {
  std::vector<RequestRecord> records;
  for (int64_t i = 0; i < 50; ++i) {
    records.push_back(done(i * 20, {i * 20 + 30, i * 20 + 100}));
  }
  const Summary summary = summarize(load_of(50), run_of(records, 1080));
  int64_t sent = 0;
  int64_t chunks = 0;
  double busy_s = 0;
  for (const TimelineSlice& slice : summary.timeline) {
    sent += slice.sent;
    chunks += slice.chunks;
    busy_s += slice.under_way * summary.slice_s;
  }
  EXPECT_EQ(sent, 50);
  EXPECT_EQ(chunks, 100);
  EXPECT_NEAR(busy_s, 5.0, 1e-6) << "50 requests of 100 ms";
  EXPECT_EQ(summary.most_under_way, 5);
}

TEST(Summary, ALateGeneratorIsSaidToBeTheBottleneck) {
  RequestRecord late = done(100, {150});
  late.due_at = late.planned_at = milliseconds(10);
  EXPECT_THAT(summarize(load_of(2), run_of({done(0, {5}), late}, 200)).warnings,
              Contains(HasSubstr("bottleneck")));
  EXPECT_THAT(summarize(load_of(1), run_of({done(0, {5})}, 200)).warnings, ::testing::IsEmpty());
  RunResult busy = run_of({done(0, {5})}, 200);
  busy.cpu_time = milliseconds(190);
  EXPECT_THAT(summarize(load_of(1), busy).warnings, Contains(HasSubstr("bottleneck")));
}

TEST(Summary, ALoadThatIsPlannedForOneMomentIsNotLate) {
  RequestRecord second = done(100, {150});
  second.due_at = second.planned_at = Nanos{0};
  EXPECT_THAT(summarize(load_of(2), run_of({done(0, {5}), second}, 200)).warnings,
              ::testing::IsEmpty());
}

TEST(ResultJson, HasVllmsKeysAtTheTopAndOursBelow) {
  const RunResult run = run_of({done(0, {50, 60}), failed(1, "http_503")}, 1000);
  const Load load = load_of(2);
  RunInfo info;
  info.request_rate = std::numeric_limits<double>::infinity();
  info.metadata["run"] = "7";
  info.metadata["completed"] = "mine";
  const nlohmann::ordered_json json =
      result_json(info, load, run, summarize(load, run), Detail::kRequests);
  for (const char* key : {"date",
                          "endpoint_type",
                          "backend",
                          "label",
                          "model_id",
                          "tokenizer_id",
                          "num_prompts",
                          "request_rate",
                          "burstiness",
                          "max_concurrency",
                          "duration",
                          "completed",
                          "failed",
                          "total_input_tokens",
                          "total_output_tokens",
                          "request_throughput",
                          "request_goodput",
                          "output_throughput",
                          "total_token_throughput",
                          "max_output_tokens_per_s",
                          "max_concurrent_requests",
                          "mean_ttft_ms",
                          "median_ttft_ms",
                          "std_ttft_ms",
                          "p99_ttft_ms",
                          "mean_tpot_ms",
                          "p99_tpot_ms",
                          "mean_itl_ms",
                          "p99_itl_ms",
                          "mean_e2el_ms",
                          "input_lens",
                          "output_lens",
                          "ttfts",
                          "itls",
                          "errors",
                          "run"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["completed"], 1) << "metadata does not replace a figure";
  EXPECT_EQ(json["request_rate"], "inf");
  EXPECT_DOUBLE_EQ(json["ttfts"][0].get<double>(), 0.05);
  EXPECT_EQ(json["errors"][1], "http_503: because");
  EXPECT_EQ(json["tandem"]["all"]["failures"]["http_503"], 1);
  EXPECT_DOUBLE_EQ(json["tandem"]["all"]["ttft_ms"]["percentiles"]["99.9"].get<double>(), 50);
  EXPECT_EQ(json["tandem"]["requests"][1]["outcome"], "http_503");
}

TEST(ResultJson, AFigureWithoutSamplesIsNull) {
  const RunResult run = run_of({done(0, {5})}, 100);  // one token: no time between tokens
  const Load load = load_of(1);
  RunInfo info;
  const auto json = result_json(info, load, run, summarize(load, run), Detail::kSummary);
  EXPECT_EQ(json["mean_ttft_ms"], 5);
  for (const char* key : {"mean_tpot_ms", "median_tpot_ms", "std_itl_ms", "p99_tpot_ms"}) {
    EXPECT_TRUE(json[key].is_null()) << key;
  }
  EXPECT_TRUE(json["tandem"]["all"]["tpot_ms"]["mean"].is_null());
  EXPECT_TRUE(json["tandem"]["all"]["tpot_ms"]["percentiles"]["99"].is_null());
  EXPECT_EQ(json["tandem"]["all"]["tpot_ms"]["count"], 0);
  const RunResult none = run_of({RequestRecord{}}, 0);
  EXPECT_TRUE(result_json(info, load, none, summarize(load, none),
                          Detail::kSummary)["tandem"]["classes"][0]["slo_attainment"]
                  .is_null());
}

TEST(ResultJson, AnEmptyRunIsStillAResult) {
  const RunResult run = run_of({RequestRecord{}}, 0);
  const Load load = load_of(1);
  const auto json = result_json(RunInfo{}, load, run, summarize(load, run), Detail::kSummary);
  EXPECT_EQ(json["completed"], 0);
  EXPECT_FALSE(json.dump().empty());
}

TEST(Summary, TheServersOwnVerdictStandsBesideTheClients) {
  Load load = load_of(3);
  load.groups[0].service_tier = "priority";
  std::vector<RequestRecord> records = {done(0, {50, 60}), done(0, {150, 160}), done(0, {50, 60})};
  records[0].usage->slo_met = true;
  records[0].usage->engine_ttft_ms = 40;
  records[0].service_tier = "priority";
  records[1].usage->slo_met = true;  // the way to the client took the rest
  records[1].usage->engine_ttft_ms = 90;
  records[1].service_tier = "flex";
  const RunResult run = run_of(std::move(records), 1000);
  const Summary summary = summarize(load, run);
  const GroupSummary& group = summary.groups[0];
  EXPECT_EQ(group.good, 2);
  EXPECT_EQ(group.judged, 2);
  EXPECT_EQ(group.judged_good, 2);
  EXPECT_EQ(group.other_tiers, 1);
  EXPECT_THAT(summary.warnings, Contains(HasSubstr("another service tier")));
  const auto json = result_json({}, load, run, summary, Detail::kSummary);
  const auto& written = json["tandem"]["classes"][0];
  EXPECT_EQ(written["engine_slo_attainment"], 1.0);
  EXPECT_EQ(written["other_service_tier"], 1);
  EXPECT_EQ(written["engine_ttft_ms"]["max"], 90);
}

}  // namespace
}  // namespace tandem::loadgen
