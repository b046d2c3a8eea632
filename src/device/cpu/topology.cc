#include "device/cpu/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "device/cpu/machine.h"
#include "device/cpu/proc_text.h"

namespace tandem::device {
namespace {

namespace fs = std::filesystem;

constexpr int32_t kMostNodeIds = 1024;  // more than any kernel is built for

// Ids in the range that nodes can have; nullopt when the list is broken or names others.
std::optional<std::vector<int32_t>> node_ids(std::string_view list) {
  const auto ranges = parse_ranges(list);
  if (!ranges) {
    return std::nullopt;
  }
  std::vector<int32_t> ids;
  for (const NumberRange& range : *ranges) {
    if (range.last >= kMostNodeIds) {
      return std::nullopt;
    }
    for (int64_t id = range.first; id <= range.last; ++id) {
      ids.push_back(static_cast<int32_t>(id));
    }
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// The lowest CPU that is a thread of the same core.
int64_t core_of(int32_t cpu, const fs::path& root) {
  const fs::path folder = root / fmt::format("sys/devices/system/cpu/cpu{}/topology", cpu);
  std::string list = read_text(folder / "core_cpus_list");
  if (list.empty()) {
    list = read_text(folder / "thread_siblings_list");  // its name before Linux 5.3
  }
  const auto siblings = parse_ranges(list);
  if (!siblings || !in_ranges(*siblings, cpu)) {
    return cpu;
  }
  int64_t lowest = cpu;
  for (const NumberRange& range : *siblings) {
    lowest = std::min(lowest, range.first);
  }
  return lowest;
}

// One of each core first.
void order_by_core(MemoryNode& node, const fs::path& root) {
  std::sort(node.cpus.begin(), node.cpus.end());
  std::set<int64_t> seen;
  const auto first_of_core = [&](int32_t cpu) { return seen.insert(core_of(cpu, root)).second; };
  std::vector<int32_t> first;
  std::vector<int32_t> other;
  for (const int32_t cpu : node.cpus) {
    (first_of_core(cpu) ? first : other).push_back(cpu);
  }
  node.cores = static_cast<int32_t>(first.size());
  first.insert(first.end(), other.begin(), other.end());
  node.cpus = std::move(first);
}

void read_memory(MemoryNode& node, const fs::path& root) {
  constexpr int64_t kKiB = 1024;
  constexpr int64_t kMost = int64_t{1} << 50;  // KiB; keeps the sums far from overflow
  const std::string text =
      read_text(root / fmt::format("sys/devices/system/node/node{}/meminfo", node.id));
  const auto kib = [&](std::string_view name) {
    return std::clamp<int64_t>(
        find_field(text, fmt::format("Node {} {}", node.id, name)).value_or(0), 0, kMost);
  };
  node.memory_bytes = kib("MemTotal") * kKiB;
  // File cache can be dropped, though what is in use comes back; as machine_memory reckons it.
  node.free_bytes = std::min(
      node.memory_bytes, (kib("MemFree") + kib("Inactive(file)") + kib("Active(file)") / 2) * kKiB);
}

Topology one_node(std::span<const int32_t> allowed_cpus, const fs::path& root) {
  MemoryNode node;
  node.cpus.assign(allowed_cpus.begin(), allowed_cpus.end());
  order_by_core(node, root);
  return {std::move(node)};
}

// What sysfs says; nullopt when it says nothing or what cannot be.
std::optional<Topology> read_nodes(std::span<const int32_t> allowed_cpus, const fs::path& root) {
  const fs::path folder = root / "sys/devices/system/node";
  const auto ids = node_ids(read_text(folder / "online"));
  if (!ids || ids->empty()) {
    return std::nullopt;
  }
  Topology nodes;
  std::map<int32_t, int32_t> homes;  // how many nodes have the CPU
  for (const int32_t id : *ids) {
    const auto cpus = parse_ranges(read_text(folder / fmt::format("node{}/cpulist", id)));
    if (!cpus) {
      return std::nullopt;
    }
    MemoryNode& node = nodes.emplace_back();
    node.id = id;
    for (const int32_t cpu : allowed_cpus) {
      if (in_ranges(*cpus, cpu)) {
        node.cpus.push_back(cpu);
        ++homes[cpu];
      }
    }
  }
  const auto has_one_home = [&](int32_t cpu) { return homes[cpu] == 1; };
  if (!std::all_of(allowed_cpus.begin(), allowed_cpus.end(), has_one_home)) {
    return std::nullopt;
  }
  return nodes;
}

// Nodes whose memory the process's cpuset allows; nullopt: the kernel does not say.
std::optional<std::vector<NumberRange>> allowed_memory(const fs::path& root) {
  constexpr std::string_view kKey = "Mems_allowed_list:";
  const std::string status = read_text(root / "proc/self/status");
  const size_t at = status.find(kKey);
  if (at == std::string::npos) {
    return std::nullopt;
  }
  const size_t begin = at + kKey.size();
  return parse_ranges(std::string_view(status).substr(begin, status.find('\n', begin) - begin));
}

std::string listed(const Topology& topology) {
  std::vector<int32_t> ids;
  for (const MemoryNode& node : topology) {
    if (!node.cpus.empty()) {
      ids.push_back(node.id);
    }
  }
  return format_ranges(ids);
}

}  // namespace

Topology read_topology(std::span<const int32_t> allowed_cpus, const fs::path& root) {
  std::optional<Topology> found = read_nodes(allowed_cpus, root);
  if (!found) {
    return one_node(allowed_cpus, root);
  }
  const auto memory = allowed_memory(root);
  for (MemoryNode& node : *found) {
    order_by_core(node, root);
    if (!memory || in_ranges(*memory, node.id)) {
      read_memory(node, root);
    }
  }
  return std::move(*found);
}

Result<NumaChoice> parse_numa(std::string_view text) {
  if (text == "auto") {
    return NumaChoice{};
  }
  if (text == "off") {
    return NumaChoice{.mode = NumaMode::kOff};
  }
  auto ids = node_ids(text);
  if (!ids || ids->empty()) {
    return invalid_argument(
        fmt::format("'{}' is neither auto, off nor a list of nodes such as 0,2-3",
                    text.substr(0, 100)),
        "numa");
  }
  return NumaChoice{.mode = NumaMode::kNodes, .nodes = std::move(*ids)};
}

Result<std::vector<MemoryNode>> choose_nodes(const Topology& topology, const NumaChoice& choice) {
  std::vector<MemoryNode> chosen;
  if (choice.mode == NumaMode::kNodes) {
    for (const int32_t id : choice.nodes) {
      const auto node = std::find_if(topology.begin(), topology.end(),
                                     [&](const MemoryNode& one) { return one.id == id; });
      if (node == topology.end() || node->cpus.empty()) {
        return invalid_argument(
            fmt::format("--numa: node {} has no CPU that this process may run on; choose among {}",
                        id, listed(topology)),
            "numa");
      }
      chosen.push_back(*node);
    }
    return chosen;
  }
  for (const MemoryNode& node : topology) {
    if (!node.cpus.empty()) {
      chosen.push_back(node);
    }
  }
  if (choice.mode == NumaMode::kAuto) {
    return chosen;
  }
  MemoryNode all;
  std::vector<int32_t> others;
  for (const MemoryNode& node : chosen) {
    all.cores += node.cores;
    all.cpus.insert(all.cpus.end(), node.cpus.begin(), node.cpus.begin() + node.cores);
    others.insert(others.end(), node.cpus.begin() + node.cores, node.cpus.end());
  }
  std::sort(all.cpus.begin(), all.cpus.end());
  std::sort(others.begin(), others.end());
  all.cpus.insert(all.cpus.end(), others.begin(), others.end());
  return std::vector<MemoryNode>{std::move(all)};
}

std::vector<MemoryNode> usable_nodes() {
  Result<std::vector<MemoryNode>> nodes = choose_nodes(read_topology(allowed_cpus()), {});
  CHECK(nodes.ok(), "{}", nodes.error().message);  // only a list can name what is not there
  return std::move(*nodes);
}

int32_t core_count(std::span<const MemoryNode> nodes) {
  return std::accumulate(nodes.begin(), nodes.end(), 0,
                         [](int32_t sum, const MemoryNode& node) { return sum + node.cores; });
}

int32_t cpu_count(std::span<const MemoryNode> nodes) {
  return std::accumulate(nodes.begin(), nodes.end(), 0, [](int32_t sum, const MemoryNode& node) {
    return sum + static_cast<int32_t>(node.cpus.size());
  });
}

}  // namespace tandem::device
