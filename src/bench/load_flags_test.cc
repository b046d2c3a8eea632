#include "bench/load_flags.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <utility>

namespace tandem::bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<loadgen::LoadStream> must_make(const StreamFlags& defaults,
                                           const std::vector<std::string>& specs) {
  Result<std::vector<loadgen::LoadStream>> streams = make_streams(defaults, specs);
  EXPECT_TRUE(streams.ok()) << streams.error().message;
  return streams.ok() ? std::move(*streams) : std::vector<loadgen::LoadStream>{};
}

std::string why_not(const StreamFlags& defaults, const std::vector<std::string>& specs) {
  const Result<std::vector<loadgen::LoadStream>> streams = make_streams(defaults, specs);
  return streams.ok() ? "" : streams.error().message;
}

// Of enough draws to show every value of a hundred.
std::pair<int32_t, int32_t> least_and_most(const workload::Lengths& lengths) {
  workload::Random random(1);
  std::pair<int32_t, int32_t> bounds(workload::kMostTokens, 0);
  for (int i = 0; i < 10000; ++i) {
    const int32_t drawn = lengths.draw(random);
    bounds = {std::min(bounds.first, drawn), std::max(bounds.second, drawn)};
  }
  return bounds;
}

TEST(LoadFlags, WithoutSpecsTheFlagsAreTheOneStream) {
  StreamFlags flags;
  flags.request_rate = 4;
  flags.random_input_len = 100;
  flags.random_range_ratio = 0.5;
  const std::vector<loadgen::LoadStream> streams = must_make(flags, {});
  ASSERT_EQ(streams.size(), 1U);
  const workload::StreamOptions& options = streams.front().options;
  EXPECT_EQ(options.arrivals.rate_per_s, 4);
  EXPECT_EQ(options.requests, 1000);
  EXPECT_EQ(least_and_most(options.input), std::pair(50, 150));
  ASSERT_EQ(streams.front().groups.size(), 1U);
  EXPECT_EQ(streams.front().groups.front().name, "default");
}

TEST(LoadFlags, KeysOfASpecStandOverTheFlags) {
  StreamFlags defaults;
  defaults.request_rate = 4;
  defaults.random_output_len = 7;
  const std::vector<loadgen::LoadStream> streams =
      must_make(defaults, {"name=chat;request-rate=2;service-tier=priority;duration=60s",
                           "service-tier=flex;goodput=ttft:500 tpot:50;model=a b"});
  ASSERT_EQ(streams.size(), 2U);
  const loadgen::LoadStream& chat = streams[0];
  EXPECT_EQ(chat.groups.front().name, "chat");
  EXPECT_EQ(chat.groups.front().service_tier, "priority");
  EXPECT_EQ(chat.options.arrivals.rate_per_s, 2);
  EXPECT_EQ(chat.options.duration, seconds(60));
  EXPECT_FALSE(chat.options.requests);
  const loadgen::LoadStream& flex = streams[1];
  EXPECT_EQ(flex.groups.front().name, "best effort");
  EXPECT_EQ(flex.options.arrivals.rate_per_s, 4);
  EXPECT_EQ(least_and_most(flex.options.output), std::pair(7, 7));
  EXPECT_EQ(flex.groups.front().goodput.tpot, milliseconds(50));
  EXPECT_EQ(flex.models, (std::vector<std::string>{"a", "b"}));
}

TEST(LoadFlags, AStreamOfASimulationMayNameItsEngine) {
  StreamFlags flags;
  EXPECT_EQ(why_not(flags, {"name=chat;engine=gpu"}), "--stream: unknown key 'engine'");
  flags.of_simulation = true;
  const std::vector<loadgen::LoadStream> streams =
      must_make(flags, {"engine=gpu;mix=priority:1,flex:1", "name=bulk"});
  ASSERT_EQ(streams.size(), 2U);
  for (const loadgen::RequestGroup& group : streams[0].groups) {
    EXPECT_EQ(group.engine, "gpu");
  }
  EXPECT_EQ(streams[1].groups.front().engine, "");
}

TEST(LoadFlags, AMixIsOneGroupForEachTier) {
  StreamFlags flags;
  flags.mix = "priority:0.7,flex:0.3";
  const loadgen::LoadStream stream = must_make(flags, {}).front();
  ASSERT_EQ(stream.groups.size(), 2U);
  EXPECT_EQ(stream.groups[0].name, "latency sensitive");
  EXPECT_EQ(stream.groups[1].service_tier, "flex");
  EXPECT_EQ(stream.options.shares, (std::vector<double>{0.7, 0.3}));
}

TEST(LoadFlags, TargetsThatAreSentAreThoseToBeKept) {
  StreamFlags flags;
  flags.slo_ttft_ms = 250;
  flags.slo_tpot = "50ms";
  const loadgen::RequestGroup group = must_make(flags, {}).front().groups.front();
  EXPECT_EQ(group.headers, "x-llm-d-slo-ttft-ms: 250.000000\r\n");
  EXPECT_EQ(group.sent_slo().ttft, TtftRule{.base = std::chrono::milliseconds(250)});
  EXPECT_EQ(group.goodput.ttft->base, milliseconds(250));
  EXPECT_EQ(group.slo.tpot, milliseconds(50));
  EXPECT_EQ(group.goodput.tpot, milliseconds(50));
}

TEST(LoadFlags, BurstsNeedTwoRates) {
  StreamFlags flags;
  flags.burst_rates = "1:8";
  const workload::StreamOptions options = must_make(flags, {}).front().options;
  EXPECT_EQ(options.arrivals.kind, workload::ArrivalKind::kBursts);
  EXPECT_EQ(options.arrivals.burst_high_per_s, 8);
  flags.burst_rates = "1";
  EXPECT_EQ(why_not(flags, {}), "--burst-rates must be LOW:HIGH, e.g. 1:8");
}

TEST(LoadFlags, AFlagWithoutAnEffectIsRefused) {
  const auto refused = [](const std::function<void(StreamFlags&)>& change,
                          const std::vector<std::string>& specs = {}) {
    StreamFlags flags;
    change(flags);
    return why_not(flags, specs);
  };
  EXPECT_EQ(refused([](StreamFlags& flags) { flags.trace_start = "10min"; }),
            "--trace-start would have no effect: it is about a trace: give --dataset-path, or "
            "leave it out");
  for (const auto& change : std::initializer_list<std::function<void(StreamFlags&)>>{
           [](StreamFlags& flags) { flags.trace_rate = 2; },
           [](StreamFlags& flags) { flags.length_scale = 0.5; },
           [](StreamFlags& flags) { flags.burst_every = "1s"; },
           [](StreamFlags& flags) { flags.random_num_prefixes = 4; },
           [](StreamFlags& flags) { flags.burstiness = 0.5; },  // all requests at once
           [](StreamFlags& flags) {
             flags.arrivals = "fixed";
             flags.request_rate = 4;
             flags.burstiness = 0.5;
           },
           [](StreamFlags& flags) {
             flags.burst_rates = "1:8";
             flags.request_rate = 4;
           }}) {
    EXPECT_NE(refused(change).find("would have no effect"), std::string::npos);
  }
  const auto burstier = [](StreamFlags& flags) {
    flags.request_rate = 4;
    flags.burstiness = 0.5;
  };
  EXPECT_EQ(refused(burstier), "");
  EXPECT_EQ(refused(burstier, {"name=chat", "name=bulk;arrivals=fixed"}), "") << "one uses it";
  EXPECT_NE(refused(burstier, {"arrivals=fixed"}), "");
}

TEST(LoadFlags, ErrorsNameTheFlag) {
  StreamFlags flags;
  EXPECT_EQ(why_not(flags, {"chat"}),
            "--stream: 'chat' is not key=value (keys are flags without dashes, set apart by ;)");
  const std::string unknown = why_not(flags, {"request-rat=3"});
  EXPECT_EQ(unknown, "--stream: unknown key 'request-rat', did you mean request-rate?");
  const std::string help = why_not(flags, {"help=x"});
  EXPECT_NE(help.find("unknown key 'help'"), std::string::npos) << help;
  flags.arrivals = "fixed";
  EXPECT_EQ(why_not(flags, {}), "--arrivals fixed needs a --request-rate");
  flags.arrivals = "trace";
  EXPECT_EQ(why_not(flags, {}), "--arrivals trace needs --dataset-path");
  flags.arrivals = "auto";
  flags.mix = "gold:1";
  EXPECT_NE(why_not(flags, {}).find("--mix: 'gold:1'"), std::string::npos);
}

}  // namespace
}  // namespace tandem::bench
