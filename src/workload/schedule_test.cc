#include "workload/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace tandem::workload {
namespace {

StreamOptions random_stream(int64_t requests, double rate = 10) {
  StreamOptions options;
  options.arrivals.rate_per_s = rate;
  options.input = *Lengths::parse("uniform:10:90");
  options.output = Lengths::fixed(5);
  options.requests = requests;
  return options;
}

StreamOptions trace_stream(std::string_view text) {
  StreamOptions options;
  options.source = Source::kTrace;
  options.trace = std::make_shared<const Trace>(*parse_trace(text, "t", {}));
  options.arrivals_from_trace = options.trace->has_times;
  return options;
}

int32_t tokens_of(const PlannedRequest& request) {
  return std::accumulate(request.prompt.begin(), request.prompt.end(), 0,
                         [](int32_t sum, const PromptPart& part) { return sum + part.tokens; });
}

bool same(const Schedule& a, const Schedule& b) {
  return std::ranges::equal(a.requests, b.requests, [](const auto& x, const auto& y) {
    return x.at == y.at && x.input_tokens == y.input_tokens && x.output_tokens == y.output_tokens &&
           x.model == y.model && x.prompt == y.prompt;
  });
}

TEST(Schedule, TheSameSeedGivesTheSameRequestsAndAnotherDoesNot) {
  StreamOptions options = random_stream(200);
  options.models = 3;
  options.prefix_tokens = 7;
  options.prefixes = 4;
  EXPECT_TRUE(same(*make_schedule({options}, 1), *make_schedule({options}, 1)));
  EXPECT_FALSE(same(*make_schedule({options}, 1), *make_schedule({options}, 2)));
}

TEST(Schedule, StreamsAreMergedByTimeAndDoNotDisturbEachOther) {
  const Schedule one = *make_schedule({random_stream(50)}, 9);
  const Schedule both = *make_schedule({random_stream(50), random_stream(80, 20)}, 9);
  EXPECT_EQ(both.requests.size(), 130);
  EXPECT_TRUE(std::ranges::is_sorted(both.requests, {}, &PlannedRequest::at));
  Schedule first;
  std::ranges::copy_if(both.requests, std::back_inserter(first.requests),
                       [](const PlannedRequest& r) { return r.stream == 0; });
  EXPECT_TRUE(same(one, first));
}

TEST(Schedule, PromptPartsSumUpAndOwnTextIsNeverShared) {
  StreamOptions options = random_stream(100);
  options.prefix_tokens = 32;
  const Schedule schedule = *make_schedule({options}, 1);
  std::vector<uint64_t> own;
  for (const PlannedRequest& request : schedule.requests) {
    EXPECT_EQ(tokens_of(request), request.input_tokens);
    ASSERT_EQ(request.prompt.size(), 2);
    EXPECT_EQ(request.prompt[0], schedule.requests[0].prompt[0]) << "the prefix is shared";
    own.push_back(request.prompt[1].seed);
  }
  std::ranges::sort(own);
  EXPECT_EQ(std::ranges::adjacent_find(own), own.end());
}

TEST(Schedule, EqualHashIdsAreEqualPartsAcrossStreams) {
  const std::string_view text =
      "arrival_s,input_tokens,output_tokens,hash_ids\n"
      "0,1024,1,5 6\n1,1000,1,5 7\n";
  const Schedule schedule = *make_schedule({trace_stream(text), trace_stream(text)}, 1);
  ASSERT_EQ(schedule.requests.size(), 4);
  for (const PlannedRequest& request : schedule.requests) {
    EXPECT_EQ(request.prompt[0], schedule.requests[0].prompt[0]);
    EXPECT_EQ(tokens_of(request), request.input_tokens);
  }
  EXPECT_EQ(schedule.requests[2].prompt[1].tokens, 488);
  EXPECT_NE(schedule.requests[0].prompt[1].seed, schedule.requests[2].prompt[1].seed);
}

TEST(Schedule, AWindowOfATraceStartsAtZeroAndSpeedShortensIt) {
  StreamOptions options = trace_stream(
      "arrival_s,input_tokens,output_tokens\n0,1,1\n10,2,1\n12,3,1\n19.5,4,1\n20,5,1\n");
  options.trace_begin = std::chrono::seconds(10);
  options.trace_length = std::chrono::seconds(10);
  options.trace_speed = 2;
  const Schedule schedule = *make_schedule({options}, 1);
  ASSERT_EQ(schedule.requests.size(), 3);
  EXPECT_EQ(schedule.requests[0].input_tokens, 2);
  EXPECT_EQ(schedule.requests[0].at, Nanos{0});
  EXPECT_EQ(schedule.requests[2].at, std::chrono::milliseconds(4750));
}

TEST(Schedule, ThinningKeepsAboutTheShareAndTheSameRowsInAnyWindow) {
  std::string text = "arrival_s,input_tokens,output_tokens\n";
  for (int i = 0; i < 10000; ++i) {
    text += std::to_string(i) + "," + std::to_string(i + 1) + ",1\n";
  }
  StreamOptions options = trace_stream(text);
  options.trace_keep = 0.2;
  const Schedule all = *make_schedule({options}, 1);
  EXPECT_NEAR(static_cast<double>(all.requests.size()), 2000, 150);
  options.trace_begin = std::chrono::seconds(5000);
  const Schedule later = *make_schedule({options}, 1);
  EXPECT_EQ(later.requests.back().input_tokens, all.requests.back().input_tokens);
}

TEST(Schedule, LongRequestsAreCutAndCounted) {
  StreamOptions options =
      trace_stream("arrival_s,input_tokens,output_tokens\n0,5000,900\n1,10,10\n");
  options.most_input_tokens = 100;
  options.most_output_tokens = 50;
  const Schedule schedule = *make_schedule({options}, 1);
  EXPECT_EQ(schedule.requests[0].input_tokens, 100);
  EXPECT_EQ(schedule.requests[0].output_tokens, 50);
  EXPECT_EQ(schedule.cut_inputs, 1);
  EXPECT_EQ(schedule.cut_outputs, 1);
}

TEST(Schedule, ScaledTracesKeepTheirSharedShare) {
  StreamOptions options = trace_stream(
      "arrival_s,input_tokens,output_tokens,hash_ids\n0,1024,100,1 2\n1,1024,100,1 3\n");
  options.length_scale = 0.125;
  const Schedule schedule = *make_schedule({options}, 1);
  EXPECT_EQ(schedule.requests[0].input_tokens, 128);
  EXPECT_EQ(schedule.requests[0].output_tokens, 13);
  EXPECT_EQ(schedule.requests[0].prompt[0], schedule.requests[1].prompt[0]);
  EXPECT_EQ(schedule.requests[0].prompt[0].tokens, 64);
}

TEST(Schedule, ModelsFollowTheTraceModuloTheirNumber) {
  StreamOptions options =
      trace_stream("arrival_s,input_tokens,output_tokens,model_id\n0,1,1,0\n1,1,1,1\n2,1,1,5\n");
  options.models = 2;
  const Schedule schedule = *make_schedule({options}, 1);
  EXPECT_EQ(schedule.requests[0].model, 0);
  EXPECT_EQ(schedule.requests[1].model, 1);
  EXPECT_EQ(schedule.requests[2].model, 1);
}

TEST(Schedule, SharesAreDealtOutByChanceAndMoveNothingElse) {
  StreamOptions options = random_stream(4000);
  const Schedule plain = *make_schedule({options}, 1);
  options.shares = {3, 1};
  const Schedule mixed = *make_schedule({options}, 1);
  EXPECT_TRUE(same(plain, mixed));
  const auto second = std::ranges::count(mixed.requests, 1, &PlannedRequest::share);
  EXPECT_NEAR(static_cast<double>(second), 1000, 120);
}

TEST(Schedule, DurationEndsARandomStream) {
  StreamOptions options = random_stream(1, 50);
  options.requests.reset();
  options.duration = std::chrono::seconds(20);
  const Schedule schedule = *make_schedule({options}, 1);
  EXPECT_NEAR(static_cast<double>(schedule.requests.size()), 1000, 130);
  EXPECT_LE(schedule.requests.back().at, std::chrono::seconds(20));
}

TEST(Schedule, EndlessOrEmptyStreamsAreRefused) {
  StreamOptions endless = random_stream(1);
  endless.requests.reset();
  EXPECT_FALSE(make_schedule({endless}, 1).ok());
  endless.duration = std::chrono::seconds(1);
  endless.arrivals.rate_per_s = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(make_schedule({endless}, 1).ok());
  StreamOptions late = trace_stream("arrival_s,input_tokens,output_tokens\n0,1,1\n");
  late.trace_begin = std::chrono::seconds(5);
  EXPECT_FALSE(make_schedule({late}, 1).ok());
  StreamOptions timeless = trace_stream("input_tokens,output_tokens\n1,1\n");
  timeless.arrivals_from_trace = true;
  EXPECT_FALSE(make_schedule({timeless}, 1).ok());
}

}  // namespace
}  // namespace tandem::workload
