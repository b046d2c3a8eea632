#include "device/emulated/emulation_spec.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <string>
#include <utility>

namespace tandem::device {
namespace {

constexpr int32_t kMaxCores = 1024;
constexpr std::string_view kParam = "emulate-accelerator";
constexpr std::string_view kHollow = "hollow";
constexpr std::string_view kKnown =
    "cores=N, host-cores=N, pace=NAME, hollow, link-gbps=X, slowdown=X, faults=F:N+..., "
    "fault-seed=N";
constexpr std::string_view kHold = "hold:";
constexpr int32_t kThousand = 1000;
constexpr double kMinFactor = 1e-3;
constexpr double kMaxFactor = 1e6;

Error spec_error(std::string message) {
  return invalid_argument(std::move(message), std::string(kParam));
}

Result<int32_t> parse_cores(std::string_view key, std::string_view value) {
  int32_t cores = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), cores);
  if (error != std::errc{} || end != value.data() + value.size() || cores < 1 ||
      cores > kMaxCores) {
    return spec_error(
        fmt::format("{}={}: must be a whole number of cores, 1 .. {}", key, value, kMaxCores));
  }
  return cores;
}

Result<double> parse_factor(std::string_view key, std::string_view value) {
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  // Written so that NaN fails.
  if (error != std::errc{} || end != value.data() + value.size() ||
      !(number >= kMinFactor && number <= kMaxFactor)) {
    return spec_error(
        fmt::format("{}={}: must be a number, {} .. {}", key, value, kMinFactor, kMaxFactor));
  }
  return number;
}

template <class Integer>
bool read_number(std::string_view text, Integer& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() && !text.empty();
}

Status parse_hold(std::string_view share, EmulationSpec& spec) {
  if (spec.held != 0) {
    return spec_error("faults: hold is given twice");
  }
  if (!read_number(share, spec.held) || spec.held < 1 || spec.held > kThousand) {
    return spec_error("faults: hold needs how many of a thousand, e.g. hold:20");
  }
  return {};
}

Status parse_faults(std::string_view text, EmulationSpec& spec) {
  while (true) {
    const size_t plus = text.find('+');
    const std::string_view item = text.substr(0, plus);
    if (item.empty()) {
      return spec_error("faults: unknown fault \"\"; for example hold:20");
    }
    if (item.starts_with(kHold)) {
      RETURN_IF_ERROR(parse_hold(item.substr(kHold.size()), spec));
    } else {
      spec.worker_faults += fmt::format("{}{}", spec.worker_faults.empty() ? "" : "+", item);
    }
    if (plus == std::string_view::npos) {
      return {};
    }
    text.remove_prefix(plus + 1);
  }
}

Status apply_item(std::string_view key, std::string_view value, EmulationSpec& spec) {
  if (key == "cores") {
    ASSIGN_OR_RETURN(spec.cores, parse_cores(key, value));
  } else if (key == "host-cores") {
    ASSIGN_OR_RETURN(spec.host_cores, parse_cores(key, value));
  } else if (key == "pace") {
    spec.pace = find_profile(value);
    if (spec.pace == nullptr) {
      return spec_error(fmt::format("pace={}: known are {}", value.substr(0, 40), profile_names()));
    }
  } else if (key == "link-gbps") {
    ASSIGN_OR_RETURN(spec.link_gbps, parse_factor(key, value));
  } else if (key == "slowdown") {
    ASSIGN_OR_RETURN(spec.slowdown, parse_factor(key, value));
  } else if (key == "faults") {
    return parse_faults(value, spec);
  } else if (key == "fault-seed") {
    if (!read_number(value, spec.fault_seed)) {
      return spec_error("fault-seed must be a whole number");
    }
  } else {
    return spec_error(fmt::format("unknown item \"{}\"; known are {}", key.substr(0, 40), kKnown));
  }
  return {};
}

}  // namespace

Result<EmulationSpec> parse_emulation_spec(std::string_view text) {
  EmulationSpec spec;
  std::set<std::string_view> seen;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    if (comma != std::string_view::npos && comma + 1 == text.size()) {
      return spec_error("an item is missing after the last comma");
    }
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
    const size_t equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    if (key.empty()) {
      return spec_error(fmt::format("an empty item; known are {}", kKnown));
    }
    if (equals == std::string_view::npos && key != kHollow) {
      return spec_error(
          fmt::format("\"{}\" has no value; known are {}", key.substr(0, 40), kKnown));
    }
    if (!seen.insert(key).second) {
      return spec_error(fmt::format("{} is given twice", key.substr(0, 40)));
    }
    if (key == kHollow) {
      if (equals != std::string_view::npos) {
        return spec_error("hollow takes no value");
      }
      spec.hollow = true;
      continue;
    }
    RETURN_IF_ERROR(apply_item(key, item.substr(equals + 1), spec));
  }
  if (spec.hollow && spec.pace == nullptr) {
    return spec_error(
        "hollow without pace: a hollow accelerator has nothing but its time; add pace=" +
        profile_names().substr(0, profile_names().find(',')) + " or another");
  }
  if (spec.slowdown != 1 && spec.link_bytes_per_second() <= 0) {
    return spec_error("slowdown without pace or link-gbps: there is nothing to slow down");
  }
  return spec;
}

std::string describe_pace(const EmulationSpec& spec) {
  std::string text =
      spec.pace == nullptr ? "free-running" : fmt::format("paced as {}", spec.pace->name);
  if (spec.hollow) {
    text += ", hollow";
  }
  if (spec.link_gbps > 0) {
    text += fmt::format(", link of {:g} GB/s", spec.link_gbps);
  }
  if (spec.slowdown != 1) {
    text += fmt::format(", {:g} times slower", spec.slowdown);
  }
  std::string faults = spec.worker_faults;
  if (spec.held > 0) {
    faults += fmt::format("{}{}{}", faults.empty() ? "" : "+", kHold, spec.held);
  }
  for (std::string_view left = faults; !left.empty();) {
    const std::string_view item = left.substr(0, left.find('+'));
    left.remove_prefix(std::min(item.size() + 1, left.size()));
    const size_t colon = std::min(item.find(':'), item.size());
    text += fmt::format(", FAULT {} in {}/1000", item.substr(0, colon),
                        item.substr(std::min(colon + 1, item.size())));
  }
  return text;
}

namespace {

// One CPU of each core where that is enough, else all: a core's other threads share its units.
std::vector<int32_t> cpus_to_divide(const EmulationSpec& spec, std::span<const MemoryNode> nodes) {
  const int32_t wanted = std::max(spec.cores, 1) + std::max(spec.host_cores, 1);
  const bool cores_suffice = wanted <= core_count(nodes);
  std::vector<int32_t> cpus;
  for (const MemoryNode& node : nodes) {
    std::vector<int32_t> own = node.cpus;
    if (cores_suffice) {
      own.resize(static_cast<size_t>(node.cores));
    }
    std::ranges::sort(own);
    cpus.insert(cpus.end(), own.begin(), own.end());
  }
  return cpus;
}

}  // namespace

Result<EmulatedCores> divide_cores(const EmulationSpec& spec, std::span<const MemoryNode> nodes) {
  const std::vector<int32_t> cpus = cpus_to_divide(spec, nodes);
  const auto count = static_cast<int32_t>(cpus.size());
  if (count == 1 && spec.cores == 0 && spec.host_cores == 0) {
    return EmulatedCores{cpus, cpus};
  }
  const int32_t host_wanted = std::max(spec.host_cores, 1);
  const int32_t cores =
      spec.cores > 0 ? spec.cores : std::max(std::min(count / 2, count - host_wanted), 1);
  const int32_t host = spec.host_cores > 0 ? spec.host_cores : std::max(count - cores, 1);
  if (cores + host > count) {
    return spec_error(fmt::format(
        "{} core{} for the accelerator and {} for the host are more than the {} that this process "
        "may use; set cores and host-cores",
        cores, cores == 1 ? "" : "s", host, count));
  }
  return EmulatedCores{{cpus.begin(), cpus.begin() + cores}, {cpus.end() - host, cpus.end()}};
}

}  // namespace tandem::device
