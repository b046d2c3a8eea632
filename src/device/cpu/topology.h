// The memory nodes (NUMA) of the machine as this process may use them: which CPUs and how much
// memory each has, and which CPUs are threads of one core. Reads /sys and /proc; changes nothing.
// Any thread.
//
// Where sysfs is absent or says what cannot be (a CPU in two nodes, or in none), there is one node
// with all CPUs, and a CPU that names no siblings is a core of its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem::device {

struct MemoryNode {
  int32_t id = 0;  // the system's number
  // Those that this process may run on: one of each core first, then the cores' other threads; each
  // part ascending. Empty: memory without CPUs.
  std::vector<int32_t> cpus = {};
  int32_t cores = 0;         // among the CPUs
  int64_t memory_bytes = 0;  // 0: none that this process may use, or not known
  int64_t free_bytes = 0;    // what could still be taken without swapping, about
};

// By id; at least one has CPUs.
using Topology = std::vector<MemoryNode>;

// `allowed_cpus` is not empty. `root` stands before every path read ("/" but for tests).
Topology read_topology(std::span<const int32_t> allowed_cpus,
                       const std::filesystem::path& root = "/");

enum class NumaMode : uint8_t {
  kAuto,   // every node with a CPU that this process may run on
  kOff,    // as if there were one node
  kNodes,  // these
};

struct NumaChoice {
  NumaMode mode = NumaMode::kAuto;
  std::vector<int32_t> nodes = {};  // ids, ascending
};

// "auto", "off" or a list of nodes such as "0,2-3".
Result<NumaChoice> parse_numa(std::string_view text);

// The nodes to compute on, by id; each has CPUs. With kOff there is one, without memory of its own.
// An error names the nodes that there are.
Result<std::vector<MemoryNode>> choose_nodes(const Topology& topology, const NumaChoice& choice);

// Of this machine, with kAuto.
std::vector<MemoryNode> usable_nodes();

int32_t core_count(std::span<const MemoryNode> nodes);
int32_t cpu_count(std::span<const MemoryNode> nodes);

}  // namespace tandem::device
