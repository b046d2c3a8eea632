// The one binary: picks the subcommand and turns usage errors into one line that names the cure.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "arguments.h"
#include "base/log.h"
#include "commands.h"
#include "model_command.h"

namespace tandem {
namespace {

int usage_error(const std::string& message) {
  fmt::print(stderr, "tandem: {}\n", message);
  return 2;
}

int run(int argc, char** argv) {
  CHECK(log::start("info").ok());  // until the command sets its own level
  CLI::App tandem("Tandem: LLM inference that shares a model's work between accelerator and CPUs",
                  "tandem");
  tandem.set_version_flag("--version", TANDEM_VERSION);
  tandem.require_subcommand(1);
  int model_exit = 0;
  CLI::App* model = add_model_command(tandem, model_exit);
  const std::vector<Command> commands = {add_serve_command(tandem), add_replay_command(tandem),
                                         add_batch_command(tandem), add_bench_command(tandem),
                                         add_profile_command(tandem)};
  name_environment(*commands.front().app);

  std::vector<std::string> arguments(argv + 1, argv + argc);
  const CLI::App* chosen = &tandem;
  std::string path;  // "bench serve "
  if (!arguments.empty()) {
    for (const Command& command : commands) {
      chosen = command.app->get_name() == arguments.front() ? command.app : chosen;
    }
    // "bench serve": what follows are the flags of the innermost subcommand.
    std::vector<std::string> names = {arguments.front()};
    arguments.erase(arguments.begin());
    while (!arguments.empty() && chosen != &tandem) {
      const auto inner = chosen->get_subcommands(
          [&](const CLI::App* command) { return command->get_name() == arguments.front(); });
      if (inner.empty()) {
        break;
      }
      chosen = inner.front();
      names.push_back(arguments.front());
      arguments.erase(arguments.begin());
    }
    Result<std::vector<std::string>> expanded = expand_config(arguments, *chosen);
    if (!expanded.ok()) {
      return usage_error(expanded.error().message);
    }
    arguments = std::move(*expanded);
    arguments.insert(arguments.begin(), names.begin(), names.end());
    path = chosen == &tandem ? "" : fmt::format("{} ", fmt::join(names, " "));
  }
  if (const std::string wrong = unknown_subcommand(arguments, tandem); !wrong.empty()) {
    return usage_error(wrong);
  }
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them last first
  try {
    tandem.parse(std::move(arguments));
  } catch (const CLI::Success& success) {
    return tandem.exit(success);
  } catch (const CLI::ParseError& error) {
    const std::string what = error.what();
    const size_t dashes = what.find("--");
    const std::string unknown =
        dashes == std::string::npos ? "" : what.substr(dashes, what.find(' ', dashes) - dashes);
    return usage_error(
        fmt::format("{}{} (see tandem {}--help)", what,
                    error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)
                        ? nearest_flag(unknown, *chosen)
                        : "",
                    path));
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) {
      return command.run();
    }
  }
  return model->parsed() ? model_exit : 2;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) { return tandem::run(argc, argv); }
