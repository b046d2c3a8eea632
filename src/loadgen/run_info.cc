#include "loadgen/run_info.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

namespace tandem::loadgen {

namespace {

// The value of the first "key : value" line of a /proc file.
std::string proc_value(const char* path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(':');
    if (colon != std::string::npos && line.starts_with(key)) {
      const size_t begin = line.find_first_not_of(" \t", colon + 1);
      return begin == std::string::npos ? "" : line.substr(begin);
    }
  }
  return {};
}

}  // namespace

nlohmann::ordered_json describe_machine() {
  nlohmann::ordered_json machine;
  machine["cpu"] = proc_value("/proc/cpuinfo", "model name");
  machine["cpus"] = sysconf(_SC_NPROCESSORS_ONLN);
  const std::string flags = " " + proc_value("/proc/cpuinfo", "flags") + " ";
  machine["isa"] = nlohmann::ordered_json::array();
  for (const char* name : {"avx2", "avx512f", "avx512_bf16", "amx_bf16", "amx_int8"}) {
    if (flags.find(" " + std::string(name) + " ") != std::string::npos) {
      machine["isa"].push_back(name);
    }
  }
  machine["memory_bytes"] = int64_t{sysconf(_SC_PHYS_PAGES)} * int64_t{sysconf(_SC_PAGESIZE)};
  utsname system{};
  if (uname(&system) == 0) {
    machine["system"] = std::string(system.sysname) + " " + system.release + " " + system.machine;
  }
  std::ifstream load("/proc/loadavg");
  double minute = 0;
  if (load >> minute) {
    machine["load_average_before"] = minute;
  }
  return machine;
}

}  // namespace tandem::loadgen
