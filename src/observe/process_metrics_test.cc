#include "observe/process_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <vector>

namespace tandem::observe {
namespace {

using ::testing::HasSubstr;

double value_of(const std::string& text, const std::string& name) {
  const size_t at = text.find("\n" + name + " ");
  EXPECT_NE(at, std::string::npos) << name << " in\n" << text;
  return at == std::string::npos ? -1 : std::atof(text.c_str() + at + name.size() + 2);
}

TEST(ProcessMetrics, TheNamesOfPrometheusClientsAreThereWithLikelyValues) {
  const std::string text = process_metrics_text();
  const double resident = value_of(text, "process_resident_memory_bytes");
  EXPECT_GT(resident, 1 << 20);
  EXPECT_GT(value_of(text, "process_virtual_memory_bytes"), resident);
  EXPECT_GE(value_of(text, "process_cpu_seconds_total"), 0);
  EXPECT_GT(value_of(text, "process_max_fds"), 2);
  const double now = static_cast<double>(std::time(nullptr));
  const double start = value_of(text, "process_start_time_seconds");
  EXPECT_LT(start, now + 5);
  EXPECT_GT(start, now - 24 * 3600);
}

TEST(ProcessMetrics, MemoryAndDescriptorsThatAreTakenAreCounted) {
  const std::string before = process_metrics_text();
  std::vector<char> memory(64 << 20, 'x');
  const std::vector<std::ifstream> files = [] {
    std::vector<std::ifstream> opened;
    for (int i = 0; i < 7; ++i) {
      opened.emplace_back("/dev/null");
    }
    return opened;
  }();
  const std::string after = process_metrics_text();
  EXPECT_GE(value_of(after, "process_resident_memory_bytes") -
                value_of(before, "process_resident_memory_bytes"),
            60 << 20)
      << memory[memory.size() / 2];
  EXPECT_EQ(value_of(after, "process_open_fds") - value_of(before, "process_open_fds"), 7);
}

TEST(ProcessMetrics, TheBuildIsNamedByVersionAndCommit) {
  EXPECT_THAT(build_info_text("1.2.3", "abc"),
              HasSubstr("\ntandem_build_info{commit=\"abc\",version=\"1.2.3\"} 1\n"));
  EXPECT_THAT(build_info_text("1.2.3", ""), HasSubstr("commit=\"unknown\""));
}

}  // namespace
}  // namespace tandem::observe
