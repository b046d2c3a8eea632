#include "device/cpu/machine.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "device/cpu/proc_text.h"

namespace tandem::device {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// A controller's folders for this process, from its own cgroup up to the mount point.
struct CgroupFolders {
  bool v2 = false;
  std::vector<fs::path> folders;
};

bool lists(std::string_view comma_separated, std::string_view word) {
  std::istringstream words{std::string(comma_separated)};
  for (std::string one; std::getline(words, one, ',');) {
    if (one == word) {
      return true;
    }
  }
  return false;
}

struct Mount {
  std::string root;  // the cgroup that the mount point shows
  fs::path point;    // where
};

// Where a controller's hierarchy is mounted (/proc/self/mountinfo, see proc(5)).
std::optional<Mount> find_mount(const std::string& mountinfo, std::string_view type,
                                std::string_view controller) {
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) {
      continue;
    }
    std::istringstream before(line.substr(0, dash));
    std::istringstream after(line.substr(dash + 3));
    std::string id;
    std::string parent;
    std::string device;
    Mount mount;
    std::string point;
    std::string file_system;
    std::string source;
    std::string super_options;
    before >> id >> parent >> device >> mount.root >> point;
    after >> file_system >> source >> super_options;
    if (file_system == type && (controller.empty() || lists(super_options, controller))) {
      mount.point = point;
      return mount;
    }
  }
  return std::nullopt;
}

// This process's cgroup in the hierarchy of `controller`, or in v2's for an empty one.
std::optional<std::string> find_group(const std::string& groups, std::string_view controller) {
  std::istringstream lines(groups);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string_view names = std::string_view(line).substr(first + 1, second - first - 1);
    if (controller.empty() ? names.empty() : lists(names, controller)) {
      return line.substr(second + 1);
    }
  }
  return std::nullopt;
}

CgroupFolders cgroup_folders(const fs::path& root, std::string_view controller) {
  const std::string groups = read_text(root / "proc/self/cgroup");
  const std::string mounts = read_text(root / "proc/self/mountinfo");
  CgroupFolders found;
  auto mount = find_mount(mounts, "cgroup", controller);
  auto group = find_group(groups, controller);
  if (!mount || !group) {
    found.v2 = true;
    mount = find_mount(mounts, "cgroup2", "");
    group = find_group(groups, "");
  }
  if (!mount || !group) {
    return found;
  }
  // Inside a container the mount may show only a part of the tree, named by its root.
  std::string below = *group;
  if (mount->root != "/" && below.starts_with(mount->root)) {
    below.erase(0, mount->root.size());
  }
  const fs::path top = root / mount->point.relative_path();
  const fs::path relative = fs::path(below).relative_path();
  fs::path folder = top;
  found.folders.push_back(folder);
  for (const fs::path& part : relative) {
    if (part == ".." || part.empty()) {
      break;  // a cgroup outside the namespace: only the mount point can be read
    }
    folder /= part;
    found.folders.push_back(folder);
  }
  std::reverse(found.folders.begin(), found.folders.end());
  return found;
}

// Bytes in use that are not file cache the kernel can drop.
int64_t held_bytes(const fs::path& folder, bool v2) {
  const auto usage =
      parse_number(read_text(folder / (v2 ? "memory.current" : "memory.usage_in_bytes")));
  const std::string stat = read_text(folder / "memory.stat");
  const char* inactive = v2 ? "inactive_file" : "total_inactive_file";
  const char* active = v2 ? "active_file" : "total_active_file";
  const int64_t droppable =
      find_field(stat, inactive).value_or(0) + find_field(stat, active).value_or(0) / 2;
  return std::max<int64_t>(usage.value_or(0) - droppable, 0);
}

}  // namespace

MachineMemory machine_memory(const fs::path& root) {
  constexpr int64_t kKiB = 1024;
  const std::string info = read_text(root / "proc/meminfo");
  const int64_t total = find_field(info, "MemTotal").value_or(0) * kKiB;
  MachineMemory memory{
      .total_bytes = total,
      .free_bytes = find_field(info, "MemAvailable").value_or(total / kKiB) * kKiB};
  const CgroupFolders groups = cgroup_folders(root, "memory");
  for (const fs::path& folder : groups.folders) {
    const auto limit =
        parse_number(read_text(folder / (groups.v2 ? "memory.max" : "memory.limit_in_bytes")));
    if (!limit || *limit >= kUnlimited / 2 || *limit >= total) {
      continue;  // "max", no such file, or the huge number that stands for no limit
    }
    memory.total_bytes = std::min(memory.total_bytes, *limit);
    memory.free_bytes =
        std::min(memory.free_bytes, std::max<int64_t>(*limit - held_bytes(folder, groups.v2), 0));
  }
  return memory;
}

std::vector<int32_t> allowed_cpus() {
  std::vector<int32_t> cpus;
  // The kernel refuses a mask smaller than its own; grow until it fits.
  for (int32_t bits = 1024; bits <= 1 << 18; bits *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(bits));
    if (set == nullptr) {
      break;
    }
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(bits));
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    for (int32_t cpu = 0; known && cpu < bits; ++cpu) {
      if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set)) {
        cpus.push_back(cpu);
      }
    }
    CPU_FREE(set);
    if (known) {
      break;
    }
  }
  if (cpus.empty()) {
    cpus.push_back(0);
  }
  return cpus;
}

int32_t quota_cpus(int32_t otherwise, const fs::path& root) {
  int64_t cpus = otherwise;
  const CgroupFolders groups = cgroup_folders(root, "cpu");
  for (const fs::path& folder : groups.folders) {
    std::optional<int64_t> quota;
    std::optional<int64_t> period;
    if (groups.v2) {
      std::istringstream both(read_text(folder / "cpu.max"));  // "max 100000" or "150000 100000"
      std::string quota_text;
      std::string period_text;
      both >> quota_text >> period_text;
      quota = parse_number(quota_text);
      period = parse_number(period_text);
    } else {
      quota = parse_number(read_text(folder / "cpu.cfs_quota_us"));
      period = parse_number(read_text(folder / "cpu.cfs_period_us"));
    }
    if (quota && period && *quota > 0 && *period > 0) {
      cpus = std::min(cpus, *quota / *period);
    }
  }
  return static_cast<int32_t>(std::max<int64_t>(cpus, 1));
}

std::string cpu_name(const std::filesystem::path& root) {
  std::ifstream file(root / "proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

}  // namespace tandem::device
