#include "device/cpu/topology.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "device/cpu/machine.h"
#include "device/cpu/proc_text.h"

namespace tandem::device {
namespace {

namespace fs = std::filesystem;
using Cpus = std::vector<int32_t>;

constexpr int64_t kNodeGiB = int64_t{1} << 30;

// A made-up /sys and /proc.
class TopologyTest : public testing::Test {
 protected:
  TopologyTest()
      : root_(fs::temp_directory_path() /
              ("tandem_topology_" + std::to_string(getpid()) + "_" +
               testing::UnitTest::GetInstance()->current_test_info()->name())) {}
  ~TopologyTest() override { fs::remove_all(root_); }

  void put(const fs::path& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void put_node(int id, const std::string& cpus, int64_t gib) const {
    const fs::path folder = "sys/devices/system/node/node" + std::to_string(id);
    put(folder / "cpulist", cpus + "\n");
    const std::string prefix = "Node " + std::to_string(id) + " ";
    const std::string kib = std::to_string(gib << 20);
    const std::string half = std::to_string((gib << 20) / 2);
    const std::string quarter = std::to_string((gib << 20) / 4);
    put(folder / "meminfo",
        prefix + "MemTotal:       " + kib + " kB\n" + prefix + "MemFree:        " + half + " kB\n" +
            prefix + "Active(file):   0 kB\n" + prefix + "Inactive(file): " + quarter + " kB\n");
  }
  void put_online(const std::string& list) const {
    put("sys/devices/system/node/online", list + "\n");
  }
  void put_siblings(int cpu, const std::string& list) const {
    put("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
        list + "\n");
  }
  [[nodiscard]] Topology read(const Cpus& allowed) const { return read_topology(allowed, root_); }
  void expect_one_node(const Cpus& allowed) const {
    const Topology topology = read(allowed);
    ASSERT_EQ(topology.size(), 1U);
    EXPECT_EQ(topology[0].cpus, allowed);
    EXPECT_EQ(topology[0].cores, static_cast<int32_t>(allowed.size()));
    EXPECT_EQ(topology[0].memory_bytes, 0);
  }

  const fs::path root_;
};

TEST_F(TopologyTest, WithoutSysfsThereIsOneNode) { expect_one_node({0, 1, 5}); }

TEST_F(TopologyTest, OneNode) {
  put_online("0");
  put_node(0, "0-3", 16);
  const Topology topology = read({0, 1, 2, 3});
  ASSERT_EQ(topology.size(), 1U);
  EXPECT_EQ(topology[0].cpus, (Cpus{0, 1, 2, 3}));
  EXPECT_EQ(topology[0].cores, 4);
  EXPECT_EQ(topology[0].memory_bytes, 16 * kNodeGiB);
  EXPECT_EQ(topology[0].free_bytes, 12 * kNodeGiB);  // unused file cache counts as free
}

TEST_F(TopologyTest, TwoNodesWithSiblingsHaveOneCpuOfEachCoreFirst) {
  put_online("0-1");
  put_node(0, "0-1,4-5", 16);
  put_node(1, "2-3,6-7", 32);
  for (int cpu = 0; cpu < 8; ++cpu) {
    put_siblings(cpu, std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4));
  }
  const Topology topology = read({0, 1, 2, 3, 4, 5, 6, 7});
  ASSERT_EQ(topology.size(), 2U);
  EXPECT_EQ(topology[0].cpus, (Cpus{0, 1, 4, 5}));
  EXPECT_EQ(topology[0].cores, 2);
  EXPECT_EQ(topology[1].id, 1);
  EXPECT_EQ(topology[1].cpus, (Cpus{2, 3, 6, 7}));
  EXPECT_EQ(topology[1].cores, 2);
  EXPECT_EQ(topology[1].memory_bytes, 32 * kNodeGiB);
  EXPECT_EQ(core_count(topology), 4);
  EXPECT_EQ(cpu_count(topology), 8);
}

TEST_F(TopologyTest, SiblingsThatAreNeighboursAreFoundToo) {
  put_online("0");
  put_node(0, "0-3", 16);
  for (int cpu = 0; cpu < 4; ++cpu) {
    put_siblings(cpu, cpu < 2 ? "0-1" : "2-3");
  }
  const Topology topology = read({0, 1, 2, 3});
  EXPECT_EQ(topology[0].cpus, (Cpus{0, 2, 1, 3}));
  EXPECT_EQ(topology[0].cores, 2);
}

TEST_F(TopologyTest, ASiblingThatMayNotBeUsedDoesNotHideItsCore) {
  put_online("0");
  put_node(0, "0-3", 16);
  for (int cpu = 0; cpu < 4; ++cpu) {
    put_siblings(cpu, cpu < 2 ? "0-1" : "2-3");
  }
  const Topology topology = read({1, 2, 3});
  EXPECT_EQ(topology[0].cpus, (Cpus{1, 2, 3}));
  EXPECT_EQ(topology[0].cores, 2);
}

TEST_F(TopologyTest, ANodeOfMemoryAloneHasNoCpus) {
  put_online("0,2");
  put_node(0, "0-1", 16);
  put_node(2, "", 256);
  const Topology topology = read({0, 1});
  ASSERT_EQ(topology.size(), 2U);
  EXPECT_EQ(topology[1].id, 2);
  EXPECT_TRUE(topology[1].cpus.empty());
  EXPECT_EQ(topology[1].memory_bytes, 256 * kNodeGiB);
  const auto chosen = choose_nodes(topology, {});
  ASSERT_TRUE(chosen.ok());
  ASSERT_EQ(chosen->size(), 1U);
  EXPECT_EQ(chosen->front().id, 0);
}

TEST_F(TopologyTest, ACpusetLeavesAPartOfANode) {
  put_online("0-1");
  put_node(0, "0-3", 16);
  put_node(1, "4-7", 16);
  put("proc/self/status", "Name:\tx\nMems_allowed:\t3\nMems_allowed_list:\t0\n");
  const Topology topology = read({2, 3, 4});
  ASSERT_EQ(topology.size(), 2U);
  EXPECT_EQ(topology[0].cpus, (Cpus{2, 3}));
  EXPECT_EQ(topology[0].memory_bytes, 16 * kNodeGiB);
  EXPECT_EQ(topology[1].cpus, (Cpus{4}));
  EXPECT_EQ(topology[1].memory_bytes, 0);  // the cpuset does not let the process take any there
}

TEST_F(TopologyTest, CpusThatAreOfflineAreInNoNode) {
  put_online("0-1");
  put_node(0, "0-1", 16);
  put_node(1, "3", 16);  // 2 is offline, and not among the allowed
  const Topology topology = read({0, 1, 3});
  EXPECT_EQ(topology[1].cpus, (Cpus{3}));
}

TEST_F(TopologyTest, FilesThatCannotBeTrueGiveOneNode) {
  const Cpus allowed{0, 1, 2, 3};
  for (const std::string online : {"", "x", "1-0", "0-", "0,,1", "-1", "0-99999999999999999999",
                                   "0-1023,5000", "1.5", "0x1"}) {
    put_online(online);
    put_node(0, "0-3", 16);
    put_node(1, "", 16);
    expect_one_node(allowed);
  }
  put_online("0-1");
  const std::pair<std::string, std::string> broken[] = {
      {"0-2", "2-3"},  // in two
      {"0-1", "3"},    // in none
      {"0-1", "2-"},  {"0-1", "three"}, {"0-1,", "2-3"},
  };
  for (const auto& [first, second] : broken) {
    put_node(0, first, 16);
    put_node(1, second, 16);
    expect_one_node(allowed);
  }
  fs::remove(root_ / "sys/devices/system/node/node1/cpulist");  // reads as empty
  put_node(0, "0-3", 16);
  EXPECT_EQ(read(allowed).size(), 2U);
}

TEST_F(TopologyTest, HostileNumbersAreBounded) {
  put_online("0");
  put_node(0, "0-9223372036854775807", 16);  // ranges are never counted out
  put("sys/devices/system/node/node0/meminfo",
      "Node 0 MemTotal: 9223372036854775807 kB\nNode 0 MemFree: 9223372036854775807 kB\n"
      "Node 0 Inactive(file): 9223372036854775807 kB\n");
  put_siblings(0, "5-9223372036854775807");  // does not hold the CPU itself
  put_siblings(1, "rubbish");
  const Topology topology = read({0, 1});
  EXPECT_EQ(topology[0].cores, 2);
  EXPECT_GT(topology[0].memory_bytes, 0);
  EXPECT_GE(topology[0].free_bytes, 0);
  EXPECT_LE(topology[0].free_bytes, topology[0].memory_bytes);
}

Topology two_memory_nodes() {
  return {
      {.id = 0, .cpus = {0, 2, 1}, .cores = 2, .memory_bytes = kNodeGiB, .free_bytes = kNodeGiB},
      {.id = 3, .cpus = {4, 5}, .cores = 1, .memory_bytes = kNodeGiB, .free_bytes = kNodeGiB},
      {.id = 4, .cpus = {}, .cores = 0, .memory_bytes = kNodeGiB, .free_bytes = kNodeGiB}};
}

TEST(ChooseNodes, AutoTakesThoseWithCpusAndAListTheNamed) {
  EXPECT_EQ(choose_nodes(two_memory_nodes(), {})->size(), 2U);
  const auto listed = choose_nodes(two_memory_nodes(), *parse_numa("3"));
  ASSERT_TRUE(listed.ok());
  ASSERT_EQ(listed->size(), 1U);
  EXPECT_EQ(listed->front().id, 3);
}

TEST(ChooseNodes, OffMakesOneNodeWithoutMemoryOfItsOwn) {
  const auto all = choose_nodes(two_memory_nodes(), *parse_numa("off"));
  ASSERT_TRUE(all.ok());
  ASSERT_EQ(all->size(), 1U);
  EXPECT_EQ(all->front().cpus, (Cpus{0, 2, 4, 1, 5}));
  EXPECT_EQ(all->front().cores, 3);
  EXPECT_EQ(all->front().memory_bytes, 0);
}

TEST(ChooseNodes, NodesThatAreNotThereOrHaveNoCpusAreRefusedByName) {
  for (const char* list : {"1", "0,4", "0-3"}) {
    const auto refused = choose_nodes(two_memory_nodes(), *parse_numa(list));
    ASSERT_FALSE(refused.ok()) << list;
    EXPECT_EQ(refused.error().param, "numa");
    EXPECT_NE(refused.error().message.find("among 0,3"), std::string::npos)
        << refused.error().message;
  }
}

TEST(ParseNuma, TakesWordsAndListsAndRefusesTheRest) {
  EXPECT_EQ(parse_numa("auto")->mode, NumaMode::kAuto);
  EXPECT_EQ(parse_numa("off")->mode, NumaMode::kOff);
  EXPECT_EQ(parse_numa("2-3,0,2")->nodes, (Cpus{0, 2, 3}));
  for (const std::string text : {"", "on", "0-", "-1", "1-0", "0,", "99999", "0-99999999999999"}) {
    const auto refused = parse_numa(text);
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_NE(refused.error().message.find("'" + text + "'"), std::string::npos);
  }
}

TEST(ParseRanges, RangesAreWrittenAsTheyAreRead) {
  for (const std::string text : {"0", "0-3", "0-3,8", "1,3,5-6", ""}) {
    const auto ranges = parse_ranges(text + "\n");
    ASSERT_TRUE(ranges) << text;
    Cpus numbers;
    for (int32_t i = 0; i < 10; ++i) {
      if (in_ranges(*ranges, i)) {
        numbers.push_back(i);
      }
    }
    EXPECT_EQ(format_ranges(numbers), text);
  }
}

TEST(Topology, ThisMachineHasEveryCpuThatItAllowsInANode) {
  const Cpus allowed = allowed_cpus();
  const Topology topology = read_topology(allowed);
  Cpus found;
  for (const MemoryNode& node : topology) {
    EXPECT_LE(node.cores, static_cast<int32_t>(node.cpus.size()));
    found.insert(found.end(), node.cpus.begin(), node.cpus.end());
  }
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, allowed);
}

}  // namespace
}  // namespace tandem::device
