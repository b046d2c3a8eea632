// Prefix sharing maximization (HyGen 4.3, A.2): best-effort requests wait in the order of a
// depth-first walk over the tree of their prefixes, so that those which share most follow each
// other and find the shared blocks still cached. Latency-sensitive ones stand before them, first
// come, first served. Inside best effort lower levels go first; each level has a tree of its own.
//
// In a tree, requests that end at a node go before its branches, and branches in the order in which
// they came. `utility` (u) is the share of picks, in percent, that follow the tree; of the others
// each takes the oldest request of the level. These are spread evenly instead of being drawn, so
// that there is a bound: the oldest request of a level is passed over at most K(u) =
// ceil(100 / (100 - u)) times in a row, and one with m older requests at most (m + 1) K(u) times.
// With u = 100 there is no bound.
//
// A node of the tree has all blocks up to the next branch, so a tree has at most two nodes for each
// request. Inserting compares names of blocks by bisection and copies the new ones.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plan/fcfs_order.h"
#include "plan/queue_order.h"

namespace tandem {

class PsmOrder final : public QueueOrder {
 public:
  explicit PsmOrder(int32_t utility);  // 1 .. 100
  ~PsmOrder() override;
  PsmOrder(const PsmOrder&) = delete;
  PsmOrder& operator=(const PsmOrder&) = delete;

  [[nodiscard]] bool classes_first() const override { return true; }
  [[nodiscard]] bool reads_prefixes() const override { return true; }
  void insert(QueueEntry& entry, const QueuePrefix& prefix) override;
  void erase(QueueEntry& entry) override;
  [[nodiscard]] std::span<QueueEntry* const> next(const QueueEntry* after) const override;
  [[nodiscard]] QueueEntry* head(ServiceClass service_class) const override;
  [[nodiscard]] size_t size(ServiceClass service_class) const override;

 private:
  using Key = std::pair<RequestId, int32_t>;  // rises with arrival
  struct Node;
  struct Tree;

  static Key key_of(const QueueEntry& entry) { return {entry.request, entry.choice}; }
  Node& place_for(Node& root, Key key, std::span<const BlockHash> blocks);
  static void split(Node& node, size_t blocks);
  static void tidy(Node* node);
  static QueueEntry* first_in(const Node& node);
  static QueueEntry* behind(const Node& node, const QueueEntry& entry);

  // Best effort in order, as far as somebody asked for it; begun anew after each change.
  struct Line {
    std::vector<QueueEntry*> entries;
    std::unordered_map<const QueueEntry*, size_t> places;
    std::map<int32_t, std::unique_ptr<Tree>>::const_iterator tree;
    QueueEntry* walked = nullptr;  // the last that the walk over the tree came to
    std::map<Key, QueueEntry*>::const_iterator oldest;
    int32_t passed = 0;
    bool begun = false;
  };
  void forget_line() { line_.begun = false; }
  void begin_line() const;
  void begin_tree() const;
  // False: there is no entry more.
  bool extend_line() const;
  [[nodiscard]] QueueEntry* walk() const;
  [[nodiscard]] std::span<QueueEntry* const> line_from(size_t place) const;

  const int32_t utility_;
  uint64_t branches_made_ = 0;
  FcfsOrder latency_sensitive_{FcfsOrder::By::kClassFirst};
  std::map<int32_t, std::unique_ptr<Tree>> trees_;      // by level
  std::unordered_map<const QueueEntry*, Node*> nodes_;  // of best effort
  mutable Line line_;
};

}  // namespace tandem
