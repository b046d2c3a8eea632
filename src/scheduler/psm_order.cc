#include "scheduler/psm_order.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace tandem {

// Apart from a root, a node has entries or at least two branches.
struct PsmOrder::Node {
  // The request that it was made for, and a number: the same request may come again.
  using Place = std::pair<Key, uint64_t>;
  Node* parent = nullptr;
  Place place{};                  // among the branches of its parent
  std::vector<BlockHash> blocks;  // from the parent on
  std::map<Key, QueueEntry*> entries;
  std::map<Place, std::unique_ptr<Node>> branches;
  std::unordered_map<BlockHash, Node*, BlockHashIndex> by_block;  // by their first
};

struct PsmOrder::Tree {
  Node root;
  std::map<Key, QueueEntry*> by_arrival;
  int32_t passed = 0;  // percent of a turn of the oldest entry, which comes at 100
};

namespace {

constexpr int32_t kTurn = 100;
constexpr size_t kExtension = 64;  // entries by which a line is made longer

// Names of equal places are equal only if all before them are.
size_t shared_blocks(std::span<const BlockHash> a, std::span<const BlockHash> b) {
  size_t low = 0;
  size_t high = std::min(a.size(), b.size());
  while (low < high) {
    const size_t middle = low + (high - low + 1) / 2;
    if (a[middle - 1] == b[middle - 1]) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// The oldest entry is passed over once more. What others than it leave the queue for is not known,
// so there is a limit.
int32_t pass(int32_t passed, int32_t utility) {
  return std::min(passed + kTurn - utility, 2 * kTurn);
}

}  // namespace

PsmOrder::PsmOrder(int32_t utility) : utility_(utility) {
  CHECK(utility > 0 && utility <= kTurn, "a utility of {} %", utility);
}

PsmOrder::~PsmOrder() {
  // Long chains of branches are taken apart one by one: freeing them by recursion could need more
  // stack than there is.
  for (auto& [level, tree] : trees_) {
    std::vector<std::unique_ptr<Node>> rest;
    for (auto& [key, branch] : tree->root.branches) {
      rest.push_back(std::move(branch));
    }
    while (!rest.empty()) {
      const std::unique_ptr<Node> node = std::move(rest.back());
      rest.pop_back();
      for (auto& [key, branch] : node->branches) {
        rest.push_back(std::move(branch));
      }
    }
  }
}

// ---------------------------------------------------------------- the tree

// The first `blocks` of the node become a node of their own, and it that one's only branch.
void PsmOrder::split(Node& node, size_t blocks) {
  Node& parent = *node.parent;
  std::unique_ptr<Node>& owner = parent.branches.at(node.place);
  auto upper = std::make_unique<Node>();
  upper->parent = &parent;
  upper->place = node.place;
  const auto cut = node.blocks.begin() + static_cast<std::ptrdiff_t>(blocks);
  upper->blocks.assign(node.blocks.begin(), cut);
  node.blocks.erase(node.blocks.begin(), cut);
  parent.by_block[upper->blocks.front()] = upper.get();
  node.parent = upper.get();
  upper->by_block[node.blocks.front()] = &node;
  upper->branches.emplace(node.place, std::move(owner));
  owner = std::move(upper);
}

PsmOrder::Node& PsmOrder::place_for(Node& root, Key key, std::span<const BlockHash> blocks) {
  Node* node = &root;
  while (!blocks.empty()) {
    const auto found = node->by_block.find(blocks.front());
    if (found == node->by_block.end()) {
      auto branch = std::make_unique<Node>();
      Node& made = *branch;
      made.parent = node;
      made.place = {key, branches_made_++};
      made.blocks.assign(blocks.begin(), blocks.end());
      node->by_block.emplace(blocks.front(), &made);
      node->branches.emplace(made.place, std::move(branch));
      return made;
    }
    Node* branch = found->second;
    const size_t shared = shared_blocks(branch->blocks, blocks);
    if (shared < branch->blocks.size()) {
      split(*branch, shared);
      branch = branch->parent;
    }
    node = branch;
    blocks = blocks.subspan(shared);
  }
  return *node;
}

// Removes what is empty, and joins a node with its only branch.
void PsmOrder::tidy(Node* node) {
  while (node->parent != nullptr && node->entries.empty()) {
    Node& parent = *node->parent;
    if (node->branches.size() > 1) {
      return;
    }
    if (node->branches.size() == 1) {
      std::unique_ptr<Node> only = std::move(node->branches.begin()->second);
      only->parent = &parent;
      only->place = node->place;
      only->blocks.insert(only->blocks.begin(), node->blocks.begin(), node->blocks.end());
      parent.by_block[only->blocks.front()] = only.get();
      parent.branches.at(node->place) = std::move(only);
      return;
    }
    parent.by_block.erase(node->blocks.front());
    parent.branches.erase(Node::Place(node->place));
    node = &parent;
  }
}

QueueEntry* PsmOrder::first_in(const Node& node) {
  const Node* first = &node;
  while (first->entries.empty()) {
    if (first->branches.empty()) {
      return nullptr;  // the root of an empty tree
    }
    first = first->branches.begin()->second.get();
  }
  return first->entries.begin()->second;
}

QueueEntry* PsmOrder::behind(const Node& node, const QueueEntry& entry) {
  const auto beside = node.entries.upper_bound(key_of(entry));
  if (beside != node.entries.end()) {
    return beside->second;
  }
  if (!node.branches.empty()) {
    return first_in(*node.branches.begin()->second);
  }
  for (const Node* up = &node; up->parent != nullptr; up = up->parent) {
    const auto branch = up->parent->branches.upper_bound(up->place);
    if (branch != up->parent->branches.end()) {
      return first_in(*branch->second);
    }
  }
  return nullptr;
}

// ---------------------------------------------------------------- the queue

void PsmOrder::insert(QueueEntry& entry, const QueuePrefix& prefix) {
  if (entry.service_class == ServiceClass::kLatencySensitive) {
    latency_sensitive_.insert(entry, prefix);
    return;
  }
  std::unique_ptr<Tree>& owned = trees_[entry.level];
  if (owned == nullptr) {
    owned = std::make_unique<Tree>();
  }
  Tree& tree = *owned;
  const Key key = key_of(entry);
  Node& node = place_for(tree.root, key, prefix.blocks);
  CHECK(node.entries.emplace(key, &entry).second && nodes_.emplace(&entry, &node).second &&
            tree.by_arrival.emplace(key, &entry).second,
        "sequence {} waits already", raw(entry.id));
  forget_line();
}

void PsmOrder::erase(QueueEntry& entry) {
  if (entry.service_class == ServiceClass::kLatencySensitive) {
    latency_sensitive_.erase(entry);
    return;
  }
  const auto place = nodes_.find(&entry);
  CHECK(place != nodes_.end(), "sequence {} does not wait", raw(entry.id));
  const auto tree = trees_.find(entry.level);
  std::map<Key, QueueEntry*>& by_arrival = tree->second->by_arrival;
  int32_t& passed = tree->second->passed;
  const Key key = key_of(entry);
  if (by_arrival.begin()->second != &entry) {
    passed = pass(passed, utility_);
  } else if (passed >= kTurn) {
    passed -= kTurn;
  }
  by_arrival.erase(key);
  Node* node = place->second;
  nodes_.erase(place);
  node->entries.erase(key);
  tidy(node);
  if (by_arrival.empty()) {
    trees_.erase(tree);
  }
  forget_line();
}

size_t PsmOrder::size(ServiceClass service_class) const {
  return service_class == ServiceClass::kLatencySensitive ? latency_sensitive_.size(service_class)
                                                          : nodes_.size();
}

QueueEntry* PsmOrder::head(ServiceClass service_class) const {
  if (service_class == ServiceClass::kLatencySensitive) {
    return latency_sensitive_.head(service_class);
  }
  const std::span<QueueEntry* const> line = line_from(0);
  return line.empty() ? nullptr : line.front();
}

std::span<QueueEntry* const> PsmOrder::next(const QueueEntry* after) const {
  if (after == nullptr || after->service_class == ServiceClass::kLatencySensitive) {
    const std::span<QueueEntry* const> run = latency_sensitive_.next(after);
    return run.empty() ? line_from(0) : run;
  }
  if (!line_.begun) {
    begin_line();
  }
  auto place = line_.places.find(after);
  while (place == line_.places.end()) {
    CHECK(extend_line(), "sequence {} does not wait", raw(after->id));
    place = line_.places.find(after);
  }
  return line_from(place->second + 1);
}

// ---------------------------------------------------------------- its line

void PsmOrder::begin_line() const {
  line_.entries.clear();
  line_.entries.reserve(nodes_.size());  // spans of it stay valid while it is made longer
  line_.places = {};                     // clear() would go through all that it ever held
  line_.tree = trees_.begin();
  line_.begun = true;
  begin_tree();
}

void PsmOrder::begin_tree() const {
  if (line_.tree != trees_.end()) {
    line_.walked = nullptr;
    line_.oldest = line_.tree->second->by_arrival.begin();
    line_.passed = line_.tree->second->passed;
  }
}

// The next entry of the walk over the tree that is not in the line; null: there is none.
QueueEntry* PsmOrder::walk() const {
  do {
    line_.walked = line_.walked == nullptr ? first_in(line_.tree->second->root)
                                           : behind(*nodes_.at(line_.walked), *line_.walked);
  } while (line_.walked != nullptr && line_.places.contains(line_.walked));
  return line_.walked;
}

bool PsmOrder::extend_line() const {
  const size_t before = line_.entries.size();
  while (line_.tree != trees_.end() && line_.entries.size() < before + kExtension) {
    const std::map<Key, QueueEntry*>& by_arrival = line_.tree->second->by_arrival;
    while (line_.oldest != by_arrival.end() && line_.places.contains(line_.oldest->second)) {
      ++line_.oldest;
    }
    if (line_.oldest == by_arrival.end()) {
      ++line_.tree;
      begin_tree();
      continue;
    }
    QueueEntry* oldest = line_.oldest->second;
    QueueEntry* picked = oldest;
    if (line_.passed >= kTurn) {
      line_.passed -= kTurn;
    } else {
      picked = walk();
      line_.passed = picked == oldest ? line_.passed : pass(line_.passed, utility_);
    }
    line_.places.emplace(picked, line_.entries.size());
    line_.entries.push_back(picked);
  }
  return line_.entries.size() > before;
}

// Entries from a place of the line on; at least one, unless there is none.
std::span<QueueEntry* const> PsmOrder::line_from(size_t place) const {
  if (!line_.begun) {
    begin_line();
  }
  while (place >= line_.entries.size() && extend_line()) {
  }
  return std::span(line_.entries).subspan(std::min(place, line_.entries.size()));
}

}  // namespace tandem
