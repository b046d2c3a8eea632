#include "sim/engine_setup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "cli/arguments.h"

namespace tandem::sim {
namespace {

std::string param_of(std::string_view list, size_t index) {
  return fmt::format("{}#{}", list, index + 1);
}

std::vector<std::string> names_of(const std::vector<EngineSetup>& engines) {
  std::vector<std::string> names;
  names.reserve(engines.size());
  for (const EngineSetup& engine : engines) {
    names.push_back(engine.name);
  }
  return names;
}

bool is_name(std::string_view text) {
  constexpr size_t kMaxName = 40;
  return !text.empty() && text.size() <= kMaxName && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  });
}

bool draws_on_host(const EngineSetup& engine) {
  return engine.options.machine.host_memory_bytes > 0 || computes_on_host(engine.options.machine);
}

Status check_name(const std::vector<EngineSetup>& engines, size_t index) {
  const std::string& name = engines[index].name;
  const std::string param = param_of("engine", index);
  if (!is_name(name)) {
    return invalid_argument(
        fmt::format("engine '{}': a name has 1 to 40 letters, digits, - or _; choose another",
                    name),
        param);
  }
  for (size_t before = 0; before < index; ++before) {
    if (engines[before].name == name) {
      return invalid_argument(
          fmt::format("engines {} and {} are both named '{}'; give one of them another name",
                      before + 1, index + 1, name),
          param);
    }
  }
  return {};
}

Status check_sharing(const std::vector<EngineSetup>& engines, size_t index) {
  const EngineSetup& engine = engines[index];
  if (engine.shares_host.empty()) {
    return {};
  }
  const auto refused = [&](const std::string& why) {
    return invalid_argument(fmt::format("engine '{}': shares-host: {}", engine.name, why),
                            param_of("engine", index));
  };
  const auto host = std::ranges::find(engines, engine.shares_host, &EngineSetup::name);
  if (host == engines.end()) {
    const std::vector<std::string> names = names_of(engines);
    return refused(fmt::format("no engine is named '{}'{}; there are {}", engine.shares_host,
                               cli::nearest_name(engine.shares_host, names),
                               fmt::join(names, ", ")));
  }
  if (&*host == &engine) {
    return refused("it names the engine itself; name another one or leave it out");
  }
  if (!host->shares_host.empty()) {
    return refused(fmt::format("'{}' has no host of its own: it shares that of '{}'; name that one",
                               host->name, host->shares_host));
  }
  for (const EngineSetup* user : {&*host, &engine}) {
    if (!draws_on_host(*user)) {
      return refused(
          fmt::format("'{}' uses no host; give it host-kv or host for a second tier, or "
                      "a host as its accelerator, for example xeon-6342",
                      user->name));
    }
  }
  return {};
}

// An engine that is named, or some engine of the group's class.
Status check_group(const loadgen::RequestGroup& group, const std::vector<EngineSetup>& engines,
                   size_t stream) {
  if (!engines_of(group, targets_of(engines)).empty()) {
    return {};
  }
  const std::string param = param_of("stream", stream);
  if (group.engine.empty()) {
    const bool flex = class_of(group) == ServiceClass::kBestEffort;
    return invalid_argument(
        fmt::format("stream '{0}' goes to no engine: none serves {1} requests; give the stream "
                    "engine: NAME, or an engine serves: {1} or serves: all",
                    group.name, flex ? "flex" : "priority"),
        param);
  }
  const std::vector<std::string> names = names_of(engines);
  return invalid_argument(
      names.front().empty()
          ? fmt::format("stream '{}' names the engine '{}', and the scenario lists no engines; "
                        "leave the key engine out, or list them under `engine`",
                        group.name, group.engine)
          : fmt::format("stream '{}': no engine is named '{}'{}; there are {}", group.name,
                        group.engine, cli::nearest_name(group.engine, names),
                        fmt::join(names, ", ")),
      param);
}

}  // namespace

bool computes_on_host(const device::SimSpec& machine) {
  // Op times are measured on the cpu back end.
  return machine.measured != nullptr || machine.accelerator.is_host;
}

Status check_engines(const std::vector<EngineSetup>& engines) {
  const bool is_unnamed = engines.size() == 1 && engines.front().name.empty();
  for (size_t i = 0; !is_unnamed && i < engines.size(); ++i) {
    RETURN_IF_ERROR(check_name(engines, i));
  }
  for (size_t i = 0; i < engines.size(); ++i) {
    RETURN_IF_ERROR(check_sharing(engines, i));
  }
  return {};
}

Status check_streams(const std::vector<loadgen::LoadStream>& streams,
                     const std::vector<EngineSetup>& engines) {
  for (size_t i = 0; i < streams.size(); ++i) {
    for (const loadgen::RequestGroup& group : streams[i].groups) {
      RETURN_IF_ERROR(check_group(group, engines, i));
    }
  }
  return {};
}

std::vector<EngineTarget> targets_of(const std::vector<EngineSetup>& engines) {
  std::vector<EngineTarget> targets;
  targets.reserve(engines.size());
  for (const EngineSetup& engine : engines) {
    targets.push_back({.name = engine.name, .serves = engine.serves});
  }
  return targets;
}

size_t host_engine_of(const EngineSetup& engine, const std::vector<EngineSetup>& engines) {
  const std::string& name = engine.shares_host.empty() ? engine.name : engine.shares_host;
  return static_cast<size_t>(std::ranges::find(engines, name, &EngineSetup::name) -
                             engines.begin());
}

Error about_engine(const std::vector<EngineSetup>& engines, size_t engine, const Error& error) {
  return {error.code, fmt::format("engine '{}': {}", engines[engine].name, error.message),
          param_of("engine", engine)};
}

}  // namespace tandem::sim
