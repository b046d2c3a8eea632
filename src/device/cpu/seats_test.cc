#include "device/cpu/seats.h"

#include <gtest/gtest.h>

#include <numeric>

namespace tandem::device {
namespace {

using Numbers = std::vector<int32_t>;

MemoryNode node_of(int32_t id, int32_t first_cpu, int32_t cores) {
  MemoryNode node;
  node.id = id;
  node.cores = cores;
  node.cpus.resize(static_cast<size_t>(cores));
  std::iota(node.cpus.begin(), node.cpus.end(), first_cpu);
  return node;
}

Numbers threads_of(const std::vector<MemoryNode>& nodes, int32_t threads) {
  Numbers found;
  for (const NodeShare& share : share_threads(nodes, threads)) {
    found.push_back(share.threads);
  }
  return found;
}

TEST(ShareThreads, ThreadsGoToNodesInProportionToCores) {
  const std::vector<MemoryNode> equal = {node_of(0, 0, 8), node_of(1, 8, 8)};
  EXPECT_EQ(threads_of(equal, 16), (Numbers{8, 8}));
  EXPECT_EQ(threads_of(equal, 5), (Numbers{3, 2}));
  EXPECT_EQ(threads_of(equal, 40), (Numbers{20, 20}));
  const std::vector<MemoryNode> unequal = {node_of(0, 0, 2), node_of(1, 2, 6), node_of(2, 8, 1)};
  EXPECT_EQ(threads_of(unequal, 9), (Numbers{2, 6, 1}));
  EXPECT_EQ(threads_of(unequal, 4), (Numbers{1, 3}));
}

TEST(ShareThreads, ANodeWithoutThreadsIsLeftOut) {
  const std::vector<MemoryNode> nodes = {node_of(0, 0, 1), node_of(7, 1, 8)};
  const std::vector<NodeShare> shares = share_threads(nodes, 1);
  ASSERT_EQ(shares.size(), 1U);
  EXPECT_EQ(shares[0].node.id, 7);
}

TEST(ShareThreads, EveryThreadIsGivenWhateverTheShape) {
  for (int32_t nodes = 1; nodes <= 9; ++nodes) {
    std::vector<MemoryNode> machine;
    for (int32_t i = 0; i < nodes; ++i) {
      machine.push_back(node_of(i, 100 * i, 1 + i * 7 % 5));
    }
    for (int32_t threads = 1; threads < 70; ++threads) {
      const Numbers found = threads_of(machine, threads);
      EXPECT_EQ(std::accumulate(found.begin(), found.end(), 0), threads);
    }
  }
}

TEST(SeatThreads, EachThreadHasACpuOfItsOwnOrItsWholeNode) {
  const std::vector<NodeShare> nodes = {{node_of(0, 0, 2), 3}, {node_of(1, 4, 2), 2}};
  const std::vector<Seat> narrow = seat_threads(nodes, SeatWidth::kCpu);
  ASSERT_EQ(narrow.size(), 5U);
  EXPECT_EQ(narrow[0].cpus, Numbers{0});
  EXPECT_EQ(narrow[1].cpus, Numbers{1});
  EXPECT_EQ(narrow[2].cpus, Numbers{0});  // more threads than CPUs
  EXPECT_EQ(narrow[3].cpus, Numbers{4});
  EXPECT_EQ(narrow[3].share, 1);
  const std::vector<Seat> wide = seat_threads(nodes, SeatWidth::kNode);
  EXPECT_EQ(wide[2].cpus, (Numbers{0, 1}));
  EXPECT_EQ(wide[4].cpus, (Numbers{4, 5}));
}

TEST(Shares, UnitsAreDividedByThreadsWithoutGapOrOverlap) {
  const Shares shares(Numbers{3, 1, 4});
  EXPECT_EQ(shares.count(), 3);
  EXPECT_EQ(shares.threads(), 8);
  for (const int64_t units : {0, 1, 7, 8, 100, 2147483647}) {
    EXPECT_EQ(shares.begin(units, 0), 0);
    EXPECT_EQ(shares.begin(units, 3), units);
    for (int32_t share = 0; share < 3; ++share) {
      EXPECT_LE(shares.begin(units, share), shares.begin(units, share + 1));
    }
  }
  EXPECT_EQ(shares.begin(80, 1), 30);
  EXPECT_EQ(shares.begin(80, 2), 40);
}

TEST(Shares, ChunksOfANodeHoldThePanelsOfThatNode) {
  // As an op divides a matrix: panels in chunks, chunks over nodes.
  const Shares shares(Numbers{6, 2});
  const int64_t panels = 1000;
  const int64_t chunks = 6 * shares.threads();
  for (int32_t share = 0; share <= shares.count(); ++share) {
    EXPECT_EQ(shares.begin(chunks, share) * panels / chunks, shares.begin(panels, share));
  }
}

}  // namespace
}  // namespace tandem::device
