#include "sim/host_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "workload/random.h"

namespace tandem::sim {
namespace {

using std::chrono::microseconds;
using ::testing::HasSubstr;

const SimHostSpec kDefaults{.bytes_per_second = 150e9, .workers = 32};

std::string error_of(const std::string& text) {
  const Result<HostList> list = parse_hosts({text}, kDefaults);
  return list.ok() ? "" : list.error().message;
}

TEST(HostList, EachHostHasItsOwnKeysOrTheDefaults) {
  const Result<HostList> list =
      parse_hosts({"kv=10GiB", "kv=1GiB;gbps=40;workers=4;latency=5us;link-gbps=12.5"}, kDefaults);
  ASSERT_TRUE(list.ok()) << list.error().message;
  ASSERT_EQ(list->hosts.size(), 2U);
  EXPECT_EQ(list->hosts[0].bytes_per_second, 150e9);
  EXPECT_EQ(list->hosts[0].link_bytes, 0);
  EXPECT_EQ(list->hosts[1].bytes_per_second, 40e9);
  EXPECT_EQ(list->hosts[1].workers, 4);
  EXPECT_EQ(list->hosts[1].latency, Nanos{microseconds(5)});
  EXPECT_EQ(list->hosts[1].link_bytes, 12.5e9);
  EXPECT_EQ(list->kv_bytes, int64_t{11} << 30);
}

TEST(HostList, PooledHostsBecomeOne) {
  const Result<HostList> list =
      parse_hosts({"kv=10GiB;pooled=true;count=3", "kv=1GiB;pooled=false"}, kDefaults);
  ASSERT_TRUE(list.ok()) << list.error().message;
  ASSERT_EQ(list->hosts.size(), 2U);
  EXPECT_EQ(list->hosts[1].bytes_per_second, 450e9);
  EXPECT_EQ(list->hosts[1].workers, 32);
  EXPECT_EQ(list->kv_bytes, int64_t{31} << 30);
}

TEST(HostList, ErrorsNameTheKeyAndTheCure) {
  EXPECT_THAT(error_of("gbps=5"), HasSubstr("add kv=SIZE"));
  EXPECT_THAT(error_of("kv"), HasSubstr("'kv' is not key=value"));
  EXPECT_THAT(error_of("kv=lots"), HasSubstr("lots"));
  EXPECT_THAT(error_of("kv=0"), HasSubstr("more than 0"));
  EXPECT_THAT(error_of("kv=8000000TiB;count=64"), HasSubstr("at most 1024TiB"));
  EXPECT_THAT(error_of("kv=1GiB;latency=2s"), HasSubstr("at most 1s"));
  EXPECT_THAT(error_of("kv=1GiB;gbps=0"), HasSubstr("--gbps"));
  EXPECT_THAT(error_of("kv=1GiB;latency=fast"), HasSubstr("latency: "));
  EXPECT_THAT(error_of("kv=1GiB;wokers=5"),
              HasSubstr("unknown key 'wokers', did you mean workers?"));
  EXPECT_THAT(error_of("kv=1GiB;pooled=yes"), HasSubstr("neither true nor false"));
}

// Whatever the text is, it is a list of hosts or an error that names the option.
TEST(HostList, AnyTextIsReadOrRefused) {
  const std::string start =
      "kv=1GiB;latency=5us;link-gbps=12.5;count=3;pooled=true;gbps=1;workers=2";
  constexpr std::string_view kSigns = "=;.0189-eEGgkvxs \"'\n";
  workload::Random random(5);
  int read = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string text = start;
    for (uint64_t edits = 1 + random.below(4); edits > 0; --edits) {
      const auto at = static_cast<size_t>(random.below(text.size()));
      random.below(2) == 0 ? text.erase(at, 1 + random.below(6))
                           : text.insert(at, 1, kSigns[random.below(kSigns.size())]);
    }
    const Result<HostList> list = parse_hosts({text}, kDefaults);
    if (list.ok()) {
      ++read;
      EXPECT_FALSE(list->hosts.empty()) << text;
      EXPECT_GE(list->kv_bytes, 0) << text;
    } else {
      EXPECT_THAT(list.error().message, HasSubstr("--host")) << text;
    }
  }
  EXPECT_GT(read, 5);
  EXPECT_LT(read, 950);
}

}  // namespace
}  // namespace tandem::sim
