#include "engine_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "cli/arguments.h"
#include "cli/config_file.h"
#include "shared_options.h"
#include "sim/engine_setup.h"
#include "vllm_flags.h"
#include "workload/number.h"

namespace tandem {
namespace {

// "name=gpu;policy=sarathi" as flags.
Result<std::vector<std::string>> engine_arguments(const std::string& spec, cli::Command app) {
  std::vector<std::string> arguments;
  for (const std::string_view item : workload::split(spec, ';')) {
    const size_t equals = item.find('=');
    if (item.empty()) {
      continue;
    }
    if (equals == item.npos) {
      return invalid_argument(
          fmt::format("'{}' is not key=value; write for example name=gpu;accelerator=a100;"
                      "policy=omniserve",
                      item),
          "");
    }
    const std::string flag = cli::flag_of_key(item.substr(0, equals));
    if (!app.has_option(flag)) {
      return invalid_argument(fmt::format("unknown key '{}'{}", item.substr(0, equals),
                                          cli::nearest_key(item.substr(0, equals), app)),
                              "");
    }
    std::string value(item.substr(equals + 1));
    if (flag == "--host") {
      std::ranges::replace(value, ',', ';');  // inside an engine a comma sets a host's keys apart
    }
    arguments.push_back(fmt::format("{}={}", flag, value));
  }
  return plain_flags(std::move(arguments), app);
}

Result<sim::EngineSetup> plan_one(const std::string& spec, EngineFlags& flags) {
  cli::CommandLine line;
  line.remove_help_flag();
  add_engine_flags(line.root(), flags);
  line.root().let_last_win();
  ASSIGN_OR_RETURN(std::vector<std::string> arguments, engine_arguments(spec, line.root()));
  const Result<std::optional<int>> done = line.parse(std::move(arguments));
  if (!done.ok()) {
    return done.error();
  }
  if (flags.name.empty()) {
    return invalid_argument("it has no name; give it one, for example name: gpu", "");
  }
  sim::EngineSetup setup{
      .name = flags.name, .options = {}, .serves = std::nullopt, .shares_host = flags.shares_host};
  if (flags.serves != "all") {
    ASSIGN_OR_RETURN(setup.serves, parse_service_class(flags.serves));
  }
  ASSIGN_OR_RETURN(setup.options, plan_engine(flags.own));
  return setup;
}

}  // namespace

void add_engine_flags(cli::Command app, EngineFlags& flags) {
  app.add_option("--name", flags.name, "By which streams and results name it");
  app.add_option("--serves", flags.serves,
                 "Requests that it may get of streams that name no engine: all, priority or flex")
      .one_of({"all", "priority", "flex"});
  app.add_option("--shares-host", flags.shares_host,
                 "The engine whose host's bandwidth this one uses, too");
  add_machine_flags(app, flags.own);
  add_simulated_node_flags(app, flags.own.serve);
}

Result<std::vector<sim::EngineSetup>> plan_engines(const SimulateFlags& flags) {
  std::vector<sim::EngineSetup> engines;
  for (const std::string& spec : flags.engines) {
    EngineFlags own{.name = "", .shares_host = "", .own = flags};
    Result<sim::EngineSetup> setup = plan_one(spec, own);
    if (!setup.ok()) {
      const Error& error = setup.error();
      const std::string number = fmt::format("{}", engines.size() + 1);
      return Error{error.code,
                   fmt::format("engine {}: {}", own.name.empty() ? number : "'" + own.name + "'",
                               error.message),
                   "engine#" + number};
    }
    engines.push_back(*std::move(setup));
  }
  RETURN_IF_ERROR(sim::check_engines(engines));
  return engines;
}

}  // namespace tandem
