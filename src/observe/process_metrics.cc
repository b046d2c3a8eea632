#include "observe/process_metrics.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

namespace tandem::observe {
namespace {

void append(std::string& out, std::string_view name, std::string_view type, std::string_view help,
            double value) {
  fmt::format_to(std::back_inserter(out), "# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3:.15g}\n", name,
                 help, type, value);
}

// Seconds since 1970 at which the machine started; 0: unknown.
double boot_time() {
  std::ifstream file("/proc/stat");
  std::string word;
  double seconds = 0;
  while (file >> word) {
    if (word == "btime" && file >> seconds) {
      return seconds;
    }
  }
  return 0;
}

// Fields 3, 4, ... of /proc/self/stat; the second, the program's name, may hold blanks.
std::array<double, 22> stat_fields() {
  std::array<double, 22> fields{};
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) {
    return fields;
  }
  std::istringstream words(text.substr(name_end + 1));
  std::string state;
  words >> state;
  for (size_t i = 1; i < fields.size() && words >> fields[i];) {
    ++i;
  }
  return fields;
}

struct Use {
  double cpu_seconds = 0;
  double virtual_bytes = 0;
  double resident_bytes = 0;
  double started = 0;  // seconds since 1970; 0: unknown
};

std::optional<Use> use_now() {
  constexpr size_t kUserTicks = 14 - 3;
  constexpr size_t kSystemTicks = 15 - 3;
  constexpr size_t kStartTicks = 22 - 3;
  constexpr size_t kVirtualBytes = 23 - 3;
  constexpr size_t kResidentPages = 24 - 3;
  const std::array<double, 22> stat = stat_fields();
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  if (stat[kStartTicks] <= 0 || ticks <= 0) {
    return std::nullopt;
  }
  static const double boot = boot_time();
  return Use{.cpu_seconds = (stat[kUserTicks] + stat[kSystemTicks]) / ticks,
             .virtual_bytes = stat[kVirtualBytes],
             .resident_bytes = stat[kResidentPages] * static_cast<double>(::sysconf(_SC_PAGESIZE)),
             .started = boot > 0 ? boot + stat[kStartTicks] / ticks : 0};
}

std::optional<int64_t> open_descriptors() {
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc/self/fd", error);
  int64_t count = -1;  // one of them is the folder itself
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    ++count;
  }
  return error || count < 0 ? std::nullopt : std::optional(count);
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

}  // namespace

std::string process_metrics_text() {
  std::string out;
  if (const std::optional<Use> use = use_now()) {
    append(out, "process_cpu_seconds_total", "counter", "User and system CPU time spent",
           use->cpu_seconds);
    append(out, "process_virtual_memory_bytes", "gauge", "Virtual memory size", use->virtual_bytes);
    append(out, "process_resident_memory_bytes", "gauge", "Resident memory size",
           use->resident_bytes);
    if (use->started > 0) {
      append(out, "process_start_time_seconds", "gauge", "Start of the process, seconds since 1970",
             use->started);
    }
  }
  if (const std::optional<int64_t> open = open_descriptors()) {
    append(out, "process_open_fds", "gauge", "Open file descriptors", static_cast<double>(*open));
  }
  if (rlimit limit{}; ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    append(out, "process_max_fds", "gauge", "File descriptors that may be open",
           static_cast<double>(limit.rlim_cur));
  }
  return out;
}

std::string process_json() {
  const std::optional<Use> use = use_now();
  return use ? fmt::format(
                   R"({{"cpu_seconds":{:.2f},"resident_bytes":{:.0f},"started_unix_seconds":{:.2f}}})",
                   use->cpu_seconds, use->resident_bytes, use->started)
             : "{}";
}

std::string build_info_text(std::string_view version, std::string_view commit) {
  return fmt::format(
      "# HELP tandem_build_info 1, labelled with the build that runs\n"
      "# TYPE tandem_build_info gauge\n"
      "tandem_build_info{{commit=\"{}\",version=\"{}\"}} 1\n",
      escaped(commit.empty() ? "unknown" : commit), escaped(version));
}

}  // namespace tandem::observe
