#include "device/emulated/emulation_spec.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem::device {
namespace {

std::string error_of(std::string_view text) {
  const auto spec = parse_emulation_spec(text);
  return spec.ok() ? "" : spec.error().message;
}

TEST(EmulationSpec, NothingGivenMeansDefaults) {
  const auto spec = parse_emulation_spec("");
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->cores, 0);
  EXPECT_EQ(spec->host_cores, 0);
}

TEST(EmulationSpec, ItemsComeInAnyOrder) {
  for (const char* text : {"cores=3,host-cores=5", "host-cores=5,cores=3"}) {
    const auto spec = parse_emulation_spec(text);
    ASSERT_TRUE(spec.ok()) << text;
    EXPECT_EQ(spec->cores, 3);
    EXPECT_EQ(spec->host_cores, 5);
  }
}

TEST(EmulationSpec, PaceHollowLinkAndSlowdownAreRead) {
  const auto spec = parse_emulation_spec("cores=1,pace=h200,hollow,link-gbps=12.5,slowdown=200");
  ASSERT_TRUE(spec.ok());
  ASSERT_NE(spec->pace, nullptr);
  EXPECT_EQ(spec->pace->name, "h200");
  EXPECT_TRUE(spec->hollow);
  EXPECT_EQ(spec->link_bytes_per_second(), 12.5e9);
  EXPECT_EQ(spec->slowdown, 200.0);
  EXPECT_EQ(describe_pace(*spec), "paced as h200, hollow, link of 12.5 GB/s, 200 times slower");
}

TEST(EmulationSpec, TheLinkIsTheProfilesUnlessItIsGiven) {
  EXPECT_EQ(parse_emulation_spec("pace=a100")->link_bytes_per_second(), 25e9);
  EXPECT_EQ(parse_emulation_spec("pace=a100,link-gbps=1")->link_bytes_per_second(), 1e9);
  EXPECT_EQ(parse_emulation_spec("link-gbps=1")->link_bytes_per_second(), 1e9);
  EXPECT_EQ(parse_emulation_spec("cores=1")->link_bytes_per_second(), 0);
  EXPECT_EQ(describe_pace(*parse_emulation_spec("cores=1")), "free-running");
}

TEST(EmulationSpec, ItemsThatMakeSenseOnlyTogetherAreRefusedAlone) {
  EXPECT_NE(error_of("hollow").find("hollow without pace"), std::string::npos);
  EXPECT_NE(error_of("slowdown=2").find("nothing to slow down"), std::string::npos);
  EXPECT_TRUE(parse_emulation_spec("slowdown=2,link-gbps=1").ok());
  EXPECT_TRUE(parse_emulation_spec("hollow,pace=t4").ok());
}

TEST(EmulationSpec, PlantedFaultsAreReadAndSaid) {
  const auto spec = parse_emulation_spec("faults=throw:20+stuck:1+hold:1000,fault-seed=7");
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->worker_faults, "throw:20+stuck:1") << "not the accelerator's: passed on";
  EXPECT_EQ(spec->held, 1000);
  EXPECT_EQ(spec->fault_seed, 7U);
  EXPECT_EQ(describe_pace(*spec),
            "free-running, FAULT throw in 20/1000, FAULT stuck in 1/1000, FAULT hold in 1000/1000");
  EXPECT_EQ(parse_emulation_spec("")->held, 0);
  for (const auto& [text, words] : std::initializer_list<std::pair<const char*, const char*>>{
           {"faults=", "unknown fault \"\""},
           {"faults=late:2+", "unknown fault \"\""},
           {"faults=hold:0", "hold needs how many of a thousand"},
           {"faults=hold:1001", "hold needs how many"},
           {"faults=hold:2x", "hold needs how many"},
           {"faults=hold:2+late:1+hold:2", "hold is given twice"},
           {"fault-seed=x", "fault-seed must be"}}) {
    EXPECT_NE(error_of(text).find(words), std::string::npos) << text << ": " << error_of(text);
  }
}

TEST(EmulationSpec, ErrorsNameTheItemAndWhatCouldStandThere) {
  EXPECT_NE(error_of("cores=0").find("cores=0: must be a whole number"), std::string::npos);
  EXPECT_NE(error_of("host-cores=1025").find("1 .. 1024"), std::string::npos);
  EXPECT_NE(error_of("gpus=2").find("unknown item \"gpus\""), std::string::npos);
  EXPECT_NE(error_of("cores").find("\"cores\" has no value"), std::string::npos);
  EXPECT_NE(error_of("cores=1,cores=2").find("cores is given twice"), std::string::npos);
}

TEST(EmulationSpec, BrokenTextsAreRefused) {
  for (const char* text : {",",
                           "cores=1,",
                           ",cores=1",
                           "cores=1,,host-cores=1",
                           "=",
                           "=1",
                           "cores=",
                           "cores=-1",
                           "cores=+1",
                           "cores=1.5",
                           "cores=1x",
                           "cores= 1",
                           " cores=1",
                           "cores=99999999999999999999",
                           "cores==1",
                           "Cores=1",
                           "cores=1;host-cores=1",
                           "pace=",
                           "pace=b200",
                           "pace=H200",
                           "pace=h200,hollow=1",
                           "pace=h200,hollow=",
                           "pace=h200,hollow,hollow",
                           "link-gbps=0",
                           "link-gbps=-1",
                           "link-gbps=nan",
                           "link-gbps=inf",
                           "link-gbps=1e99",
                           "link-gbps=1GB",
                           "link-gbps=0x10",
                           "pace=t4,slowdown=0"}) {
    const auto spec = parse_emulation_spec(text);
    ASSERT_FALSE(spec.ok()) << text;
    EXPECT_EQ(spec.error().param, "emulate-accelerator");
    EXPECT_EQ(spec.error().code, ErrorCode::kInvalidArgument);
  }
}

// So many cores of one thread each.
Topology cpus_of(int32_t count) {
  MemoryNode node;
  node.cores = count;
  for (int32_t i = 0; i < count; ++i) {
    node.cpus.push_back(2 * i + 1);
  }
  return {node};
}

// Two nodes of two cores with two threads each, numbered as on most machines.
Topology threaded_nodes() {
  return {{.id = 0, .cpus = {0, 1, 4, 5}, .cores = 2}, {.id = 1, .cpus = {2, 3, 6, 7}, .cores = 2}};
}

struct Division {
  int32_t cpus;
  EmulationSpec spec;
  int32_t accelerator;
  int32_t host;
};

TEST(EmulationSpec, CoresAreDividedWithoutOverlap) {
  for (const Division& one :
       {Division{2, {}, 1, 1}, Division{3, {}, 1, 2}, Division{8, {}, 4, 4},
        Division{8, {.cores = 2}, 2, 6}, Division{8, {.host_cores = 7}, 1, 7},
        Division{8, {.host_cores = 2}, 4, 2}, Division{8, {.cores = 3, .host_cores = 2}, 3, 2}}) {
    const auto cores = divide_cores(one.spec, cpus_of(one.cpus));
    ASSERT_TRUE(cores.ok()) << cores.error().message;
    EXPECT_EQ(cores->accelerator.size(), static_cast<size_t>(one.accelerator));
    EXPECT_EQ(cores->host.size(), static_cast<size_t>(one.host));
    EXPECT_LT(cores->accelerator.back(), cores->host.front());
  }
}

TEST(EmulationSpec, MoreCoresThanThereAreIsAnErrorThatNamesThem) {
  for (const EmulationSpec& spec :
       {EmulationSpec{.cores = 4}, EmulationSpec{.host_cores = 4},
        EmulationSpec{.cores = 3, .host_cores = 2}, EmulationSpec{.cores = 1024}}) {
    const auto cores = divide_cores(spec, cpus_of(4));
    ASSERT_FALSE(cores.ok());
    EXPECT_NE(cores.error().message.find("4 that this process"), std::string::npos);
  }
  EXPECT_FALSE(divide_cores({.cores = 1}, cpus_of(1)).ok());
}

TEST(EmulationSpec, ACoreIsNotSharedByTheTiersWhileThereAreOthers) {
  const auto half = divide_cores({}, threaded_nodes());
  ASSERT_TRUE(half.ok()) << half.error().message;
  EXPECT_EQ(half->accelerator, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(half->host, (std::vector<int32_t>{2, 3}));
  const auto all = divide_cores({.cores = 5, .host_cores = 2}, threaded_nodes());
  ASSERT_TRUE(all.ok()) << all.error().message;
  EXPECT_EQ(all->accelerator, (std::vector<int32_t>{0, 1, 4, 5, 2}));
  EXPECT_EQ(all->host, (std::vector<int32_t>{6, 7}));
  const Topology one_core = {{.id = 0, .cpus = {0, 1}, .cores = 1}};
  const auto threads = divide_cores({}, one_core);
  ASSERT_TRUE(threads.ok()) << threads.error().message;
  EXPECT_EQ(threads->accelerator, (std::vector<int32_t>{0}));
  EXPECT_EQ(threads->host, (std::vector<int32_t>{1}));
}

TEST(EmulationSpec, AMachineOfOneCpuSharesItWhenNoNumberIsAsked) {
  const auto cores = divide_cores({}, cpus_of(1));
  ASSERT_TRUE(cores.ok());
  EXPECT_EQ(cores->accelerator, cores->host);
}

}  // namespace
}  // namespace tandem::device
