// Several engines in first virtual time: their effects on each other, and that they have no others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/check.h"
#include "model/make.h"
#include "sim/simulate.h"
#include "sim/test_support.h"

namespace tandem::sim {
namespace {

using ::testing::HasSubstr;

EngineSetup engine_of(const std::string& name, const std::string& accelerator,
                      const std::string& policy) {
  EngineSetup engine{.name = name, .options = {}, .serves = std::nullopt, .shares_host = ""};
  engine.options.machine = {.name = accelerator,
                            .accelerator = *device::find_profile(accelerator),
                            .memory_bytes = int64_t{64} << 30,
                            .link_bytes = 25e9};
  engine.options.shape = *model::preset_config("8B");
  engine.options.node.max_model_len = 4096;
  engine.options.node.policy = policy;
  return engine;
}

// More best effort than its memory holds: sequences are on the host.
EngineSetup with_host(EngineSetup engine, double bytes_per_second) {
  engine.options.node.max_num_seqs = 64;
  engine.options.machine.memory_bytes = int64_t{17} << 30;
  engine.options.machine.host_memory_bytes = int64_t{64} << 30;
  engine.options.hosts = {{.bytes_per_second = bytes_per_second, .workers = 8}};
  return engine;
}

struct Stream {
  std::string name;
  std::string tier;
  std::string engine;
  int64_t requests = 0;
  double rate = 0;
  int32_t input = 0;
  int32_t output = 0;
};

loadgen::Load load_of(const Stream& of) {
  loadgen::LoadStream stream;
  stream.options.arrivals.rate_per_s = of.rate;
  stream.options.requests = of.requests;
  stream.options.input = workload::Lengths::fixed(of.input);
  stream.options.output = workload::Lengths::fixed(of.output);
  stream.groups = {{.name = of.name, .service_tier = of.tier, .engine = of.engine}};
  stream.models = {"8B"};
  return *loadgen::make_load({stream}, 7);
}

// Both loads as first, for two engines.
loadgen::Load together(const loadgen::Load& first, const loadgen::Load& other) {
  loadgen::Load load = first;
  load.models = {"one", "other"};
  load.groups.push_back(other.groups.front());
  for (loadgen::LoadRequest request : other.requests) {
    request.group = 1;
    load.requests.push_back(std::move(request));
  }
  std::ranges::stable_sort(load.requests, {}, [](const auto& request) { return request.plan.at; });
  return load;
}

SeveralSimulated run(const std::vector<EngineSetup>& engines, const loadgen::Load& load) {
  Result<SeveralSimulated> simulated = simulate(engines, std::chrono::hours(1), load, {});
  CHECK(simulated.ok(), "{}", simulated.error().message);
  return *std::move(simulated);
}

// The engine alone, with a load that names it.
Simulated alone(const EngineSetup& engine, loadgen::Load load) {
  for (loadgen::RequestGroup& group : load.groups) {
    group.engine.clear();
  }
  Result<Simulated> simulated = simulate(engine.options, load, {});
  CHECK(simulated.ok(), "{}", simulated.error().message);
  return *std::move(simulated);
}

// When each token of a group's requests came.
std::vector<std::vector<Nanos>> tokens_of(const loadgen::RunResult& run, int32_t group) {
  std::vector<std::vector<Nanos>> times;
  for (const loadgen::RequestRecord& record : run.records) {
    if (record.group == group) {
      EXPECT_EQ(record.outcome, loadgen::Outcome::kDone) << record.message;
      times.push_back(record.chunk_times);
    }
  }
  return times;
}

Nanos end_of(const loadgen::RunResult& run, int32_t group) {
  Nanos end{0};
  for (const std::vector<Nanos>& times : tokens_of(run, group)) {
    end = std::max(end, times.back());
  }
  return end;
}

const Stream kChat{.name = "chat",
                   .tier = "priority",
                   .engine = "gpu",
                   .requests = 40,
                   .rate = 4,
                   .input = 600,
                   .output = 60};
const Stream kBulk{.name = "bulk",
                   .tier = "flex",
                   .engine = "cpu",
                   .requests = 12,
                   .rate = 2,
                   .input = 100,
                   .output = 20};
// As bulk, for an engine with a host.
const Stream kOffloaded{.name = "offloaded",
                        .tier = "flex",
                        .engine = "gpu",
                        .requests = 60,
                        .rate = 20,
                        .input = 700,
                        .output = 60};

TEST(SeveralEngines, EachDoesExactlyWhatItDoesAlone) {
  for (const char* policy : {"sarathi", "omniserve"}) {
    const EngineSetup gpu = with_host(engine_of("gpu", "a100", policy), 20e9);
    const EngineSetup cpu = engine_of("cpu", "xeon-6342", "accel_only");
    const loadgen::Load offloaded = load_of(kOffloaded);
    const loadgen::Load bulk = load_of(kBulk);
    const SeveralSimulated both = run({gpu, cpu}, together(offloaded, bulk));
    const Simulated gpu_alone = alone(gpu, offloaded);
    const Simulated cpu_alone = alone(cpu, bulk);
    EXPECT_EQ(tokens_of(both.run, 0), tokens_of(gpu_alone.run, 0)) << policy;
    EXPECT_EQ(tokens_of(both.run, 1), tokens_of(cpu_alone.run, 0)) << policy;
    EXPECT_EQ(both.engines[0].tiers.hops, gpu_alone.tiers.hops) << policy;
    EXPECT_EQ(both.engines[0].machine.steps(), gpu_alone.machine.steps()) << policy;
    EXPECT_EQ(both.engines[1].machine.steps(), cpu_alone.machine.steps()) << policy;
    EXPECT_EQ(both.engines[1].machine.busy().accelerator, cpu_alone.machine.busy().accelerator);
    EXPECT_EQ(both.engines[0].profiled, gpu_alone.profiled) << policy;
  }
}

TEST(SeveralEngines, RepeatAndDoNotDependOnTheOrderOfTheList) {
  const EngineSetup gpu = with_host(engine_of("gpu", "a100", "omniserve"), 20e9);
  EngineSetup cpu = engine_of("cpu", "xeon-6342", "accel_only");
  cpu.shares_host = "gpu";
  Stream anywhere = kOffloaded;
  anywhere.engine = "";
  const loadgen::Load load = together(load_of(anywhere), load_of(kBulk));
  const SeveralSimulated first = run({gpu, cpu}, load);
  const SeveralSimulated again = run({gpu, cpu}, load);
  const SeveralSimulated swapped = run({cpu, gpu}, load);
  EXPECT_EQ(first.happenings, again.happenings);
  EXPECT_EQ(first.happenings, swapped.happenings);
  for (const int32_t group : {0, 1}) {
    EXPECT_EQ(tokens_of(first.run, group), tokens_of(again.run, group));
    EXPECT_EQ(tokens_of(first.run, group), tokens_of(swapped.run, group));
  }
  EXPECT_EQ(first.engines[0].tiers.hops, swapped.engines[1].tiers.hops);
  EXPECT_GT(first.engines[0].tiers.hops, 0);
  EXPECT_EQ(first.engines[1].machine.steps(), swapped.engines[0].machine.steps());
  for (size_t i = 0; i < first.run.records.size(); ++i) {
    EXPECT_EQ(first.run.records[i].model, 1 - swapped.run.records[i].model) << i;
  }
}

// The host attends for offloaded sequences most of the time, and products on the host
// read its memory nearly all the time.
TEST(SeveralEngines, ASharedHostSlowsBothDown) {
  EngineSetup gpu = with_host(engine_of("gpu", "a100", "overlap"), 5e9);
  offload_early(gpu.options.node);
  EngineSetup cpu = engine_of("cpu", "xeon-6342", "accel_only");
  Stream decode = kBulk;  // steps of a single sequence are the same however long they take
  decode.requests = 1;
  decode.output = 60;
  const loadgen::Load load = together(load_of(kOffloaded), load_of(decode));
  const SeveralSimulated apart = run({gpu, cpu}, load);
  cpu.shares_host = "gpu";
  const SeveralSimulated shared = run({gpu, cpu}, load);
  EXPECT_GT(apart.engines[0].tiers.hops, 0);
  EXPECT_GT(end_of(shared.run, 0), end_of(apart.run, 0));
  EXPECT_GT(end_of(shared.run, 1), end_of(apart.run, 1));
  // Two users that need all the bandwidth get half each, so no op takes more than twice its time.
  EXPECT_LT(to_seconds(end_of(shared.run, 1)), 2.1 * to_seconds(end_of(apart.run, 1)));
}

TEST(SeveralEngines, AloneOnASharedHostAnEngineIsNotSlower) {
  const EngineSetup gpu = with_host(engine_of("gpu", "a100", "overlap"), 20e9);
  EngineSetup cpu = engine_of("cpu", "xeon-6342", "accel_only");
  cpu.shares_host = "gpu";
  const loadgen::Load bulk = load_of(kBulk);
  loadgen::Load load = bulk;
  load.models = {"gpu", "cpu"};
  EXPECT_EQ(tokens_of(run({gpu, cpu}, load).run, 0), tokens_of(alone(cpu, bulk).run, 0));
}

// Two equal engines share what is sent to neither of them by name.
TEST(SeveralEngines, EqualEnginesShareRequests) {
  const EngineSetup first = engine_of("one", "a100", "sarathi");
  const EngineSetup other = engine_of("other", "a100", "sarathi");
  Stream anywhere = kChat;
  anywhere.engine = "";
  anywhere.rate = 40;
  loadgen::Load load = load_of(anywhere);
  load.models = {"one", "other"};
  const SeveralSimulated both = run({first, other}, load);
  const auto of_one = std::ranges::count(both.run.records, 0, &loadgen::RequestRecord::model);
  EXPECT_GE(of_one, 15);
  EXPECT_LE(of_one, 25);
  EXPECT_LT(end_of(both.run, 0), end_of(alone(first, load).run, 0));
}

// The order of the engines by name is not their order by speed.
TEST(SeveralEngines, AnEngineThatRefusesPassesRequestsOn) {
  Stream chat = kChat;
  chat.engine = "";
  loadgen::Load load = load_of(chat);
  load.models = {"one", "other"};
  load.groups.front().slo = {.ttft = TtftRule{.base = std::chrono::seconds(1)},
                             .tpot = std::chrono::milliseconds(50)};
  const EngineSetup gpu = engine_of("gpu", "a100", "omniserve");
  for (const char* name : {"cpu", "zcpu"}) {
    const SeveralSimulated both = run({gpu, engine_of(name, "xeon-6342", "omniserve")}, load);
    EXPECT_EQ(tokens_of(both.run, 0), tokens_of(alone(gpu, load).run, 0)) << name;
  }
  // A gpu whose sequences are too short for these requests refuses them all.
  EngineSetup small = gpu;
  small.options.node.max_model_len = 512;
  const EngineSetup other = engine_of("other", "a100", "omniserve");
  const SeveralSimulated passed = run({small, other}, load);
  EXPECT_EQ(tokens_of(passed.run, 0), tokens_of(alone(other, load).run, 0));
  for (const loadgen::RequestRecord& record : passed.run.records) {
    EXPECT_EQ(record.model, 1);
  }
}

TEST(SeveralEngines, ARequestThatAllEnginesRefuseIsRefusedByTheFirstChoice) {
  Stream chat = kChat;
  chat.engine = "";
  chat.input = 5000;
  loadgen::Load load = load_of(chat);
  load.models = {"one", "other"};
  EngineSetup fast = engine_of("zfast", "a100", "sarathi");
  fast.options.node.max_model_len = 3072;
  const SeveralSimulated both = run({engine_of("cpu", "xeon-6342", "sarathi"), fast}, load);
  for (const loadgen::RequestRecord& record : both.run.records) {
    EXPECT_EQ(record.outcome, loadgen::Outcome::kFailed);
    EXPECT_EQ(record.reason, "too_long");
    EXPECT_THAT(record.message, HasSubstr("3072"));
    EXPECT_EQ(record.model, 1);
  }
}

TEST(SeveralEngines, AnErrorNamesTheEngine) {
  EngineSetup small = engine_of("small", "a100", "sarathi");
  small.options.machine.memory_bytes = int64_t{8} << 30;
  const Status checked = check({engine_of("large", "a100", "sarathi"), small});
  ASSERT_FALSE(checked.ok());
  EXPECT_THAT(checked.error().message, HasSubstr("engine 'small': "));
  EXPECT_THAT(checked.error().message, HasSubstr("does not fit"));
  EXPECT_EQ(checked.error().param, "engine#2");
}

TEST(SeveralEngines, ARunMayStopWithWorkUnderWayOnASharedHost) {
  const EngineSetup gpu = with_host(engine_of("gpu", "a100", "lanes"), 5e9);
  EngineSetup cpu = engine_of("cpu", "xeon-6342", "accel_only");
  cpu.shares_host = "gpu";
  const loadgen::Load load = together(load_of(kOffloaded), load_of(kBulk));
  for (const int64_t limit : {1500, 2013, 2507}) {
    const Result<SeveralSimulated> simulated =
        simulate({gpu, cpu}, std::chrono::milliseconds(limit), load, {});
    ASSERT_TRUE(simulated.ok());
    EXPECT_TRUE(simulated->run.interrupted);
  }
}

}  // namespace
}  // namespace tandem::sim
