#include "device/cpu/placement.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <thread>

#include "device/cpu/machine.h"
#include "device/cpu/pages.h"

namespace tandem::device {
namespace {

std::byte* address(int64_t at) {
  return reinterpret_cast<std::byte*>(at);  // NOLINT(performance-no-int-to-ptr): never read
}

constexpr int64_t kPanelBytes = 4096 * kernels::kPanelColumns * 2;  // a depth of 4096 in bf16

kernels::PackedMatrix matrix_at(int64_t at, int64_t panels) {
  return {.data = address(at), .n = panels * kernels::kPanelColumns, .k = 4096};
}

std::vector<NodeShare> two_shares() {
  return {{.node = {.id = 0, .cpus = {0}, .cores = 1, .memory_bytes = 1}, .threads = 2},
          {.node = {.id = 5, .cpus = {1}, .cores = 1, .memory_bytes = 1}, .threads = 6}};
}

TEST(RangesOfPanels, EachShareGetsItsPanelsCutAtHugePages) {
  const int64_t base = 100 * kHugePageBytes + 640;
  const int64_t panels = 400;  // 50 huge pages
  const std::vector<PageRange> ranges =
      ranges_of_panels(matrix_at(base, panels), shares_of(two_shares()));
  ASSERT_EQ(ranges.size(), 2U);
  EXPECT_EQ(ranges[0].share, 0);
  EXPECT_EQ(ranges[1].share, 1);
  EXPECT_EQ(ranges[0].data, address(100 * kHugePageBytes));
  EXPECT_EQ(ranges[0].data + ranges[0].bytes, ranges[1].data);
  for (const PageRange& range : ranges) {
    EXPECT_EQ(range.bytes % kHugePageBytes, 0);
  }
  const auto cut = reinterpret_cast<int64_t>(ranges[1].data);
  EXPECT_LT(std::abs(cut - (base + panels / 4 * kPanelBytes)), kHugePageBytes);
  // Never behind the matrix, where its mapping may end.
  EXPECT_LE(cut + ranges[1].bytes, base + panels * kPanelBytes);
}

TEST(RangesOfPanels, MatricesThatFollowEachOtherShareNoPage) {
  const Shares shares = shares_of(two_shares());
  const int64_t base = 100 * kHugePageBytes + 8192;
  const std::vector<PageRange> first = ranges_of_panels(matrix_at(base, 37), shares);
  const std::vector<PageRange> second =
      ranges_of_panels(matrix_at(base + 37 * kPanelBytes, 50), shares);
  EXPECT_EQ(first.back().data + first.back().bytes, second.front().data);
}

TEST(RangesOfPanels, AMatrixSmallerThanAHugePageStaysWhereItFalls) {
  EXPECT_TRUE(ranges_of_panels(matrix_at(7 * kHugePageBytes, 7), shares_of(two_shares())).empty());
  EXPECT_TRUE(ranges_of_panels(matrix_at(7 * kHugePageBytes, 0), shares_of(two_shares())).empty());
}

TEST(RangesOfSpread, StretchesOfWholeBlocksGoToTheSharesInTurn) {
  const SpreadMemory memory{address(kHugePageBytes), 10 * kHugePageBytes + 5, kHugePageBytes + 1};
  const std::vector<PageRange> ranges = ranges_of_spread(memory, shares_of(two_shares()));
  ASSERT_EQ(ranges.size(), 6U);
  int64_t at = kHugePageBytes;
  for (size_t i = 0; i < ranges.size(); ++i) {
    EXPECT_EQ(ranges[i].share, static_cast<int32_t>(i % 2));
    EXPECT_EQ(ranges[i].data, address(at));
    at += ranges[i].bytes;
  }
  EXPECT_EQ(ranges[0].bytes, 2 * kHugePageBytes);
  EXPECT_EQ(ranges[5].bytes, sysconf(_SC_PAGESIZE));
}

TEST(RangesOfSpread, ALargePoolHasABoundedNumberOfStretches) {
  const int64_t bytes = int64_t{3} << 40;
  const std::vector<PageRange> ranges =
      ranges_of_spread({address(kHugePageBytes), bytes, 4 << 20}, shares_of(two_shares()));
  EXPECT_LE(static_cast<int64_t>(ranges.size()), kMaxStretches);
  int64_t sum = 0;
  for (const PageRange& range : ranges) {
    sum += range.bytes;
  }
  EXPECT_EQ(sum, bytes);
  EXPECT_TRUE(ranges_of_spread({address(kHugePageBytes), 0, 1}, shares_of(two_shares())).empty());
}

// Writes down what is asked for.
class PageRecorder final : public PagePlacer {
 public:
  explicit PageRecorder(bool allows) : allows_(allows) {}

  [[nodiscard]] bool has_policy_of_its_own() const override { return own_policy; }
  [[nodiscard]] bool prefer(std::byte* /*data*/, int64_t /*bytes*/, int32_t node) const override {
    preferred.push_back(node);
    return allows_;
  }
  void touch(std::byte* /*data*/, int64_t /*bytes*/, std::span<const int32_t> cpus) const override {
    touched_from.push_back(cpus.front());
  }

  mutable std::vector<int32_t> preferred;
  mutable std::vector<int32_t> touched_from;
  bool own_policy = false;

 private:
  bool allows_;
};

constexpr int64_t kBase = 100 * kHugePageBytes;

TEST(Placement, PanelsAndStretchesArePreferredOnTheNodesOfTheirShares) {
  const PageRecorder recorder(true);
  Placement placement(two_shares(), recorder);
  placement.place_panels(matrix_at(kBase, 400));
  EXPECT_EQ(recorder.preferred, (std::vector<int32_t>{0, 5}));
  placement.spread({address(kBase), 4 * kHugePageBytes, 1});
  EXPECT_EQ(recorder.preferred, (std::vector<int32_t>{0, 5, 0, 5, 0, 5}));
  EXPECT_TRUE(recorder.touched_from.empty());
}

TEST(Placement, WhereTheKernelRefusesWeightsAreTouchedFromTheirNodesAndKvIsNot) {
  const PageRecorder recorder(false);
  Placement placement(two_shares(), recorder);
  placement.place_panels(matrix_at(kBase, 400));
  EXPECT_EQ(recorder.touched_from, (std::vector<int32_t>{0, 1}));
  placement.spread({address(kBase), 4 * kHugePageBytes, 1});
  EXPECT_EQ(recorder.touched_from.size(), 2U);
}

TEST(Placement, NothingIsAskedOfANodeWithoutMemory) {
  const PageRecorder recorder(true);
  std::vector<NodeShare> nodes = two_shares();
  nodes[0].node.memory_bytes = 0;
  Placement placement(nodes, recorder);
  placement.place_panels(matrix_at(kBase, 400));
  EXPECT_EQ(recorder.preferred, std::vector<int32_t>{5});
}

TEST(Placement, OneNodeOrAPolicyThatCameWithTheProcessLeavesMemoryAlone) {
  PageRecorder recorder(true);
  EXPECT_NE(make_placement(two_shares(), recorder), nullptr);
  EXPECT_EQ(make_placement({two_shares().front()}, recorder), nullptr);
  recorder.own_policy = true;
  EXPECT_EQ(make_placement(two_shares(), recorder), nullptr);
}

// --- what the kernel really does

std::optional<int32_t> node_of_page(const std::byte* page) {
  int node = -1;
  if (syscall(SYS_get_mempolicy, &node, nullptr, 0L, page, MPOL_F_NODE | MPOL_F_ADDR) != 0) {
    return std::nullopt;
  }
  return node;
}

// The first node that has CPUs and memory for this process.
std::optional<int32_t> usable_node() {
  for (const MemoryNode& node : read_topology(allowed_cpus())) {
    if (!node.cpus.empty() && node.memory_bytes > 0) {
      return node.id;
    }
  }
  return std::nullopt;
}

TEST(KernelPlacer, PreferredPagesComeFromTheirNode) {
  const std::optional<int32_t> node = usable_node();
  if (!node) {
    GTEST_SKIP() << "this machine does not say what memory its nodes have";
  }
  const auto pages = Pages::map(4 * kHugePageBytes);
  ASSERT_TRUE(pages.has_value());
  std::byte* second = pages->data() + kHugePageBytes;
  if (!kernel_placer().prefer(second, 2 * kHugePageBytes, *node)) {
    GTEST_SKIP() << "the kernel refuses mbind: " << std::strerror(errno);
  }
  int mode = -1;
  std::array<uint64_t, 16> mask{};
  ASSERT_EQ(syscall(SYS_get_mempolicy, &mode, mask.data(), 1024L, second, MPOL_F_ADDR), 0);
  EXPECT_EQ(mode, MPOL_PREFERRED);
  EXPECT_EQ(mask[static_cast<size_t>(*node) / 64], uint64_t{1} << (*node % 64));
  ASSERT_EQ(syscall(SYS_get_mempolicy, &mode, nullptr, 0L, pages->data(), MPOL_F_ADDR), 0);
  EXPECT_EQ(mode, MPOL_DEFAULT);  // its neighbours are left alone
  std::memset(pages->data(), 1, static_cast<size_t>(pages->bytes()));
  for (int64_t at = kHugePageBytes; at < 3 * kHugePageBytes; at += kHugePageBytes / 4) {
    EXPECT_EQ(node_of_page(pages->data() + at), node);
  }
}

TEST(KernelPlacer, APolicyThatCameWithTheThreadIsSeen) {
  const std::optional<int32_t> node = usable_node();
  if (!node) {
    GTEST_SKIP() << "this machine does not say what memory its nodes have";
  }
  // A policy is the thread's own, and ends with it.
  std::thread([&] {
    std::array<uint64_t, 16> mask{};
    mask[static_cast<size_t>(*node) / 64] = uint64_t{1} << (*node % 64);
    if (syscall(SYS_set_mempolicy, MPOL_INTERLEAVE, mask.data(), 1024L) != 0) {
      GTEST_SKIP() << "the kernel refuses set_mempolicy: " << std::strerror(errno);
    }
    EXPECT_TRUE(kernel_placer().has_policy_of_its_own());
    ASSERT_EQ(syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0L), 0);
    EXPECT_FALSE(kernel_placer().has_policy_of_its_own());
  }).join();
}

TEST(KernelPlacer, ANodeThatIsNotThereIsRefused) {
  const auto pages = Pages::map(kHugePageBytes);
  ASSERT_TRUE(pages.has_value());
  for (const int32_t node : {-1, 1023, 1024, 1 << 30}) {
    EXPECT_FALSE(kernel_placer().prefer(pages->data(), kHugePageBytes, node)) << node;
  }
}

TEST(KernelPlacer, TouchedPagesAreThereAndHoldZeros) {
  const auto pages = Pages::map(3 * kHugePageBytes);
  ASSERT_TRUE(pages.has_value());
  const std::vector<int32_t> cpus = allowed_cpus();
  kernel_placer().touch(pages->data(), kHugePageBytes, cpus);
  const int64_t page = sysconf(_SC_PAGESIZE);
  for (int64_t at = 0; at < kHugePageBytes; at += page) {
    unsigned char resident = 0;
    ASSERT_EQ(mincore(pages->data() + at, static_cast<size_t>(page), &resident), 0);
    ASSERT_EQ(resident & 1U, 1U) << at;
    ASSERT_EQ(pages->data()[at], std::byte{0});
  }
  unsigned char resident = 0;
  ASSERT_EQ(mincore(pages->data() + 2 * kHugePageBytes, static_cast<size_t>(page), &resident), 0);
  EXPECT_EQ(resident & 1U, 0U);
}

}  // namespace
}  // namespace tandem::device
