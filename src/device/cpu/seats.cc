#include "device/cpu/seats.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace tandem::device {

Shares::Shares(std::span<const int32_t> threads) : firsts_{0} {
  CHECK(!threads.empty(), "no shares");
  for (const int32_t own : threads) {
    CHECK(own > 0, "a share of {} threads", own);
    firsts_.push_back(firsts_.back() + own);
  }
}

std::vector<NodeShare> share_threads(std::span<const MemoryNode> nodes, int32_t threads) {
  const int64_t cores = core_count(nodes);
  CHECK(threads >= 1 && cores >= 1, "{} threads on {} cores", threads, cores);
  std::vector<NodeShare> shares;
  std::vector<size_t> order;  // largest remainder first
  int32_t given = 0;
  for (const MemoryNode& node : nodes) {
    const auto own = static_cast<int32_t>(int64_t{threads} * node.cores / cores);
    order.push_back(shares.size());
    shares.push_back({node, own});
    given += own;
  }
  const auto remainder = [&](size_t i) { return int64_t{threads} * nodes[i].cores % cores; };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return remainder(a) > remainder(b); });
  for (size_t i = 0; given < threads; ++i, ++given) {
    ++shares[order[i]].threads;
  }
  std::erase_if(shares, [](const NodeShare& share) { return share.threads == 0; });
  return shares;
}

Shares shares_of(std::span<const NodeShare> nodes) {
  std::vector<int32_t> threads;
  threads.reserve(nodes.size());
  for (const NodeShare& share : nodes) {
    threads.push_back(share.threads);
  }
  return Shares(threads);
}

std::vector<Seat> seat_threads(std::span<const NodeShare> nodes, SeatWidth width) {
  std::vector<Seat> seats;
  for (size_t share = 0; share < nodes.size(); ++share) {
    const std::vector<int32_t>& cpus = nodes[share].node.cpus;
    for (int32_t i = 0; i < nodes[share].threads; ++i) {
      Seat& seat = seats.emplace_back();
      seat.share = static_cast<int32_t>(share);
      seat.cpus = width == SeatWidth::kNode
                      ? cpus
                      : std::vector<int32_t>{cpus[static_cast<size_t>(i) % cpus.size()]};
    }
  }
  return seats;
}

std::vector<Seat> seats_at(std::span<const int32_t> cpus) {
  std::vector<Seat> seats;
  seats.reserve(cpus.size());
  for (const int32_t cpu : cpus) {
    seats.push_back({.share = 0, .cpus = {cpu}});
  }
  return seats;
}

}  // namespace tandem::device
