// Which node and CPUs each compute thread is on, and how work and memory are shared out over nodes:
// in proportion to their threads. Arithmetic alone; pins and places nothing. Any thread.
//
// Threads are numbered node by node, so thread 0, which brings the work, is on the first node. A
// share is what belongs to one node that has threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/cpu/topology.h"

namespace tandem::device {

// Where a compute thread runs.
struct Seat {
  int32_t share = 0;
  std::vector<int32_t> cpus = {};  // any of these; empty: anywhere
};

// Divides anything countable over the shares. The same division places a matrix's panels and gives
// them to threads.
class Shares {
 public:
  // One share with all threads.
  explicit Shares(int32_t threads) : Shares(std::vector<int32_t>{threads}) {}
  // Of each share, in order; at least one, each above 0.
  explicit Shares(std::span<const int32_t> threads);

  [[nodiscard]] int32_t count() const { return static_cast<int32_t>(firsts_.size()) - 1; }
  [[nodiscard]] int32_t threads() const { return firsts_.back(); }
  // First of `units` that belongs to the share; of count() it is `units`. Units below 2^31.
  [[nodiscard]] int64_t begin(int64_t units, int32_t share) const {
    return units * firsts_[static_cast<size_t>(share)] / firsts_.back();
  }

 private:
  std::vector<int32_t> firsts_;  // first thread of each share, and the number of threads
};

// A node and its compute threads.
struct NodeShare {
  MemoryNode node;
  int32_t threads = 0;
};

// Threads in proportion to cores, to whole threads by the largest remainder, the first node first
// where equal. Nodes that get none are left out. threads >= 1; nodes as choose_nodes gives them.
std::vector<NodeShare> share_threads(std::span<const MemoryNode> nodes, int32_t threads);

Shares shares_of(std::span<const NodeShare> nodes);

enum class SeatWidth : uint8_t {
  kCpu,   // a thread has a CPU of its own, as long as the node has that many
  kNode,  // it runs anywhere on its node
};

// One for each thread, in order.
std::vector<Seat> seat_threads(std::span<const NodeShare> nodes, SeatWidth width);

// A seat at each of these CPUs, all on one node.
std::vector<Seat> seats_at(std::span<const int32_t> cpus);

}  // namespace tandem::device
