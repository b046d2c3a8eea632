#include "sim/engine_setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::sim {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

EngineSetup gpu_with_host(const std::string& name) {
  EngineSetup engine{.name = name, .options = {}, .serves = std::nullopt, .shares_host = ""};
  engine.options.machine.accelerator = *device::find_profile("a100");
  engine.options.machine.host_memory_bytes = int64_t{1} << 30;
  return engine;
}

EngineSetup cpu_on(const std::string& host) {
  EngineSetup engine{.name = "cpu", .options = {}, .serves = std::nullopt, .shares_host = host};
  engine.options.machine.accelerator = *device::find_profile("xeon-6342");
  return engine;
}

loadgen::LoadStream stream_of(const std::string& tier, const std::string& engine) {
  loadgen::LoadStream stream;
  stream.groups = {{.name = "chat", .service_tier = tier, .engine = engine}};
  return stream;
}

Error error_of(const Status& status) { return status.ok() ? Error{} : status.error(); }

TEST(EngineSetup, EnginesThatGoTogetherPass) {
  const std::vector<EngineSetup> engines = {cpu_on("gpu"), gpu_with_host("gpu")};
  EXPECT_TRUE(check_engines(engines).ok());
  EXPECT_EQ(host_engine_of(engines[0], engines), 1U);
  EXPECT_EQ(host_engine_of(engines[1], engines), 1U);
  EXPECT_TRUE(check_engines({EngineSetup{}}).ok());  // the only one of a run
}

TEST(EngineSetup, NamesDifferAndArePlain) {
  const Error twice = error_of(check_engines({gpu_with_host("a"), gpu_with_host("a")}));
  EXPECT_THAT(twice.message, HasSubstr("engines 1 and 2 are both named 'a'"));
  EXPECT_EQ(twice.param, "engine#2");
  const Error odd = error_of(check_engines({gpu_with_host("a/b"), gpu_with_host("a")}));
  EXPECT_THAT(odd.message, HasSubstr("letters, digits, - or _"));
  EXPECT_EQ(odd.param, "engine#1");
}

TEST(EngineSetup, AHostThatIsSharedIsThere) {
  const auto error = [](const std::vector<EngineSetup>& engines) {
    return error_of(check_engines(engines)).message;
  };
  EXPECT_THAT(error({gpu_with_host("gpu"), cpu_on("gpuu")}),
              AllOf(HasSubstr("no engine is named 'gpuu'"), HasSubstr("did you mean gpu?"),
                    HasSubstr("there are gpu, cpu")));
  EXPECT_THAT(error({gpu_with_host("gpu"), cpu_on("cpu")}), HasSubstr("names the engine itself"));
  EngineSetup third = cpu_on("cpu");
  third.name = "third";
  EXPECT_THAT(error({gpu_with_host("gpu"), cpu_on("gpu"), third}),
              HasSubstr("it shares that of 'gpu'; name that one"));
  EngineSetup bare = gpu_with_host("gpu");
  bare.options.machine.host_memory_bytes = 0;
  EXPECT_THAT(error({bare, cpu_on("gpu")}),
              AllOf(HasSubstr("'gpu' uses no host"), HasSubstr("give it host-kv")));
  bare.name = "bare";
  bare.shares_host = "gpu";
  EXPECT_THAT(error({gpu_with_host("gpu"), bare}), HasSubstr("'bare' uses no host"));
}

TEST(EngineSetup, EveryStreamHasAnEngine) {
  std::vector<EngineSetup> engines = {gpu_with_host("gpu"), cpu_on("gpu")};
  EXPECT_TRUE(check_streams({stream_of("flex", ""), stream_of("", "cpu")}, engines).ok());
  const Error unknown =
      error_of(check_streams({stream_of("flex", ""), stream_of("", "cpus")}, engines));
  EXPECT_THAT(unknown.message, AllOf(HasSubstr("no engine is named 'cpus', did you mean cpu?"),
                                     HasSubstr("there are gpu, cpu")));
  EXPECT_EQ(unknown.param, "stream#2");
  for (EngineSetup& engine : engines) {
    engine.serves = ServiceClass::kBestEffort;
  }
  EXPECT_THAT(
      error_of(check_streams({stream_of("priority", "")}, engines)).message,
      AllOf(HasSubstr("goes to no engine: none serves priority"), HasSubstr("serves: all")));
  EXPECT_THAT(error_of(check_streams({stream_of("", "gpu")}, {EngineSetup{}})).message,
              HasSubstr("the scenario lists no engines"));
}

}  // namespace
}  // namespace tandem::sim
