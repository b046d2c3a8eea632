#include "sim/host_list.h"

#include <fmt/format.h>

#include "base/units.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "workload/number.h"

namespace tandem::sim {
namespace {

struct HostFlags {
  int32_t count = 1;
  std::string kv;
  double gbps = 0;
  int32_t workers = 0;
  std::string latency = "0s";
  double link_gbps = 0;
  bool pooled = false;
};

void add_host_flags(cli::Command app, HostFlags& flags) {
  app.add_option("--count", flags.count, "So many of these hosts").in_range(1, 64);
  app.add_option("--kv", flags.kv, "Memory for KV");
  app.add_option("--gbps", flags.gbps, "GB/s at which its workers read KV").in_range(1e-3, 1e6);
  app.add_option("--workers", flags.workers, "Attention workers").in_range(1, 4096);
  app.add_option("--latency", flags.latency, "Of a link of its own, each way");
  app.add_option("--link-gbps", flags.link_gbps, "GB/s of that link, each direction")
      .in_range(1e-3, 1e6);
  app.add_option_function<std::string>(
      "--pooled",
      [&flags](const std::string& value) {
        if (value != "true" && value != "false") {
          cli::refuse("--pooled", fmt::format("'{}' is neither true nor false", value));
        }
        flags.pooled = value == "true";
      },
      "KV is spread over all hosts with this mark");
}

Error about_host(const std::string& text, const std::string& what) {
  return invalid_argument(fmt::format("--host '{}': {}", text, what), "host");
}

Result<HostFlags> parse_host(const std::string& text, const SimHostSpec& defaults) {
  HostFlags flags;
  flags.gbps = defaults.bytes_per_second / 1e9;
  flags.workers = defaults.workers;
  cli::CommandLine line;
  line.remove_help_flag();
  add_host_flags(line.root(), flags);
  std::vector<std::string> arguments;
  for (const std::string_view item : workload::split(text, ';')) {
    const size_t equals = item.find('=');
    if (equals == item.npos) {
      return about_host(text, fmt::format("'{}' is not key=value; write for example "
                                          "kv=256GiB;gbps=150;workers=24",
                                          item));
    }
    const std::string_view key = item.substr(0, equals);
    const std::string flag = fmt::format("--{}", key);
    if (!line.root().has_option(flag)) {
      return about_host(text,
                        fmt::format("unknown key '{}'{}", key, cli::nearest_key(key, line.root())));
    }
    arguments.push_back(flag);
    arguments.emplace_back(item.substr(equals + 1));
  }
  const Result<std::optional<int>> done = line.parse(std::move(arguments));
  if (!done.ok()) {
    return about_host(text, done.error().message);
  }
  return flags;
}

Result<SimHostSpec> spec_of(const HostFlags& flags, const SimHostSpec& defaults,
                            const std::string& text) {
  if (flags.kv.empty()) {
    return about_host(text, "its memory is missing; add kv=SIZE, for example kv=256GiB");
  }
  const Result<int64_t> kv = parse_bytes(flags.kv);
  if (!kv.ok()) {
    return about_host(text, "kv: " + kv.error().message);
  }
  constexpr int64_t kMaxBytes = int64_t{1} << 50;
  if (*kv <= 0 || *kv > kMaxBytes) {
    return about_host(text, "kv must be more than 0 and at most 1024TiB");
  }
  const Result<Nanos> latency = parse_duration(flags.latency);
  if (!latency.ok()) {
    return about_host(text, "latency: " + latency.error().message);
  }
  if (*latency > std::chrono::seconds(1)) {
    return about_host(text, "latency must be at most 1s");
  }
  return SimHostSpec{.bytes_per_second = flags.gbps * 1e9,
                     .workers = flags.workers,
                     .task = defaults.task,
                     .kv_bytes = *kv,
                     .link_bytes = flags.link_gbps * 1e9,
                     .latency = *latency};
}

}  // namespace

Result<HostList> parse_hosts(const std::vector<std::string>& texts, const SimHostSpec& defaults) {
  HostList listed;
  std::vector<SimHostSpec> pooled;
  for (const std::string& text : texts) {
    ASSIGN_OR_RETURN(const HostFlags flags, parse_host(text, defaults));
    ASSIGN_OR_RETURN(const SimHostSpec host, spec_of(flags, defaults, text));
    for (int32_t i = 0; i < flags.count; ++i) {
      (flags.pooled ? pooled : listed.hosts).push_back(host);
    }
  }
  if (!pooled.empty()) {
    listed.hosts.push_back(pool_of(pooled));
  }
  for (const SimHostSpec& host : listed.hosts) {
    listed.kv_bytes += host.kv_bytes;
  }
  return listed;
}

}  // namespace tandem::sim
