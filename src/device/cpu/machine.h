// What this process may use of the machine: CPUs by affinity and cgroup quota, memory by cgroup
// limits (v1 and v2, every ancestor) and by what the kernel says is available. Reads /proc and the
// cgroup file systems; changes nothing. Any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tandem::device {

struct MachineMemory {
  int64_t total_bytes = 0;  // the smallest of physical memory and the cgroup limits
  int64_t free_bytes = 0;   // what could still be taken without swapping or hitting a limit
};

// `root` stands before every path read ("/" but for tests).
MachineMemory machine_memory(const std::filesystem::path& root = "/");

// CPUs this thread may run on, ascending; never empty.
std::vector<int32_t> allowed_cpus();

// CPU time the cgroups grant, in whole CPUs (at least 1), or `otherwise` where nothing limits it.
int32_t quota_cpus(int32_t otherwise, const std::filesystem::path& root = "/");

// What the system calls its CPUs, or "unknown".
std::string cpu_name(const std::filesystem::path& root = "/");

}  // namespace tandem::device
