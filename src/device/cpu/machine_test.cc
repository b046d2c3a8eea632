#include "device/cpu/machine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace tandem::device {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kGiB = int64_t{1} << 30;

// A made-up /proc and cgroup tree.
class MachineTest : public testing::Test {
 protected:
  MachineTest()
      : root_(fs::temp_directory_path() /
              ("tandem_machine_" + std::to_string(getpid()) + "_" +
               testing::UnitTest::GetInstance()->current_test_info()->name())) {
    put("proc/meminfo",
        "MemTotal:       33554432 kB\nMemFree:         1000 kB\nMemAvailable:   16777216 kB\n");
  }
  ~MachineTest() override { fs::remove_all(root_); }

  void put(const fs::path& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  const fs::path root_;
};

TEST_F(MachineTest, WithoutCgroupsTheKernelsNumbersHold) {
  EXPECT_EQ(machine_memory(root_).total_bytes, 32 * kGiB);
  EXPECT_EQ(machine_memory(root_).free_bytes, 16 * kGiB);
  EXPECT_EQ(quota_cpus(6, root_), 6);
}

TEST_F(MachineTest, TheTightestAncestorOfAVersion2GroupHolds) {
  put("proc/self/cgroup", "0::/pod/app\n");
  put("proc/self/mountinfo", "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  put("sys/fs/cgroup/pod/memory.max", "4294967296\n");
  put("sys/fs/cgroup/pod/memory.current", "2147483648\n");
  put("sys/fs/cgroup/pod/memory.stat", "anon 5\ninactive_file 1073741824\nactive_file 0\n");
  put("sys/fs/cgroup/pod/cpu.max", "350000 100000\n");
  put("sys/fs/cgroup/pod/app/memory.max", "max\n");
  put("sys/fs/cgroup/pod/app/cpu.max", "max 100000\n");
  EXPECT_EQ(machine_memory(root_).total_bytes, 4 * kGiB);
  EXPECT_EQ(machine_memory(root_).free_bytes, 3 * kGiB);
  EXPECT_EQ(quota_cpus(8, root_), 3);
}

TEST_F(MachineTest, AVersion1GroupHolds) {
  put("proc/self/cgroup", "4:memory:/job/7\n2:cpu,cpuacct:/job\n0::/\n");
  put("proc/self/mountinfo",
      "35 31 0:32 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
      "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/memory/job/7/memory.limit_in_bytes", "2147483648\n");
  put("sys/fs/cgroup/memory/job/7/memory.usage_in_bytes", "1073741824\n");
  put("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "50000\n");
  put("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(machine_memory(root_).total_bytes, 2 * kGiB);
  EXPECT_EQ(machine_memory(root_).free_bytes, kGiB);
  EXPECT_EQ(quota_cpus(4, root_), 1);  // half a CPU is still one thread
}

TEST_F(MachineTest, AContainerSeesItsGroupAtTheMountPoint) {
  put("proc/self/cgroup", "0::/docker/abc\n");
  put("proc/self/mountinfo", "30 20 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  put("sys/fs/cgroup/memory.max", "1073741824\n");
  put("sys/fs/cgroup/memory.current", "0\n");
  EXPECT_EQ(machine_memory(root_).total_bytes, kGiB);
  EXPECT_EQ(machine_memory(root_).free_bytes, kGiB);
}

TEST_F(MachineTest, NonsenseInTheFilesMeansNoLimit) {
  put("proc/self/cgroup", "0::/../x\nrubbish\n:::\n");
  put("proc/self/mountinfo", "a b\n30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n - \n");
  put("sys/fs/cgroup/memory.max", "lots\n");
  put("sys/fs/cgroup/cpu.max", "\n");
  EXPECT_EQ(machine_memory(root_).total_bytes, 32 * kGiB);
  EXPECT_EQ(quota_cpus(2, root_), 2);
}

TEST(Machine, ThisMachineHasMemoryAndACpu) {
  EXPECT_GT(machine_memory().total_bytes, 0);
  EXPECT_GT(machine_memory().free_bytes, 0);
  EXPECT_LE(machine_memory().free_bytes, machine_memory().total_bytes);
  EXPECT_GE(allowed_cpus().size(), 1U);
}

}  // namespace
}  // namespace tandem::device
