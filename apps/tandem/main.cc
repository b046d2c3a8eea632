// The one binary: picks the subcommand and turns usage errors into one line that names the cure.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "arguments.h"
#include "base/check.h"
#include "base/log.h"
#include "commands.h"
#include "commit.h"
#include "help.h"
#include "model_command.h"
#include "vllm_flags.h"

namespace tandem {
namespace {

int usage_error(const std::string& message) {
  fmt::print(stderr, "tandem: {}\n", message);
  return 2;
}

// "0.1.0 (54d7ab1b95b7)".
std::string version_text() {
  return *kCommit == '\0' ? TANDEM_VERSION : fmt::format("{} ({})", TANDEM_VERSION, kCommit);
}

// The words that name the subcommand, and what follows them.
struct CommandLine {
  const CLI::App* command = nullptr;  // the innermost that is named
  std::vector<std::string> names;
  std::vector<std::string> rest;
};

CommandLine split(const CLI::App& root, const std::vector<std::string>& arguments) {
  CommandLine line{.command = &root, .names = {}, .rest = arguments};
  while (!line.rest.empty()) {
    const auto inner = line.command->get_subcommands(
        [&](const CLI::App* command) { return command->get_name() == line.rest.front(); });
    if (inner.empty()) {
      break;
    }
    line.command = inner.front();
    line.names.push_back(line.rest.front());
    line.rest.erase(line.rest.begin());
  }
  return line;
}

// In CLI11's terms: the flags of a --config file are put before the others, and vLLM's ways of
// writing flags become ours.
Status expand(CommandLine& line, const CLI::App& serve) {
  if (line.command->get_option_no_throw("--config") == nullptr) {
    return {};
  }
  line.rest = plain_flags(std::move(line.rest), *line.command);
  const bool named = std::ranges::any_of(line.rest, [](const std::string& argument) {
    return argument == "--config" || argument.starts_with("--config=");
  });
  const char* variable = std::getenv("TANDEM_CONFIG");  // NOLINT(concurrency-mt-unsafe): at start
  if (line.command == &serve && !named && variable != nullptr && *variable != '\0') {
    line.rest.insert(line.rest.begin(), fmt::format("--config={}", variable));
  }
  ASSIGN_OR_RETURN(line.rest, expand_config(line.rest, *line.command));
  line.rest = plain_flags(std::move(line.rest), *line.command);
  return {};
}

int run(int argc, char** argv) {
  CHECK(log::start("info").ok());  // until the command sets its own level
  CLI::App tandem("Tandem: LLM inference that shares a model's work between accelerator and CPUs",
                  "tandem");
  tandem.formatter(std::make_shared<HelpFormatter>());  // of the subcommands, too
  tandem.set_version_flag("--version", version_text());
  tandem.require_subcommand(1);
  int model_exit = 0;
  CLI::App* model = add_model_command(tandem, model_exit);
  const std::vector<Command> commands = {add_serve_command(tandem), add_replay_command(tandem),
                                         add_batch_command(tandem), add_bench_command(tandem),
                                         add_profile_command(tandem)};
  name_environment(*commands.front().app);
  if (argc <= 1) {
    fmt::print(stderr, "{}", tandem.help());
    return 2;
  }

  CommandLine line = split(tandem, {argv + 1, argv + argc});
  std::string path;  // "bench serve "
  for (const std::string& name : line.names) {
    path += name + " ";
  }
  if (const Status expanded = expand(line, *commands.front().app); !expanded.ok()) {
    return usage_error(expanded.error().message);
  }
  std::vector<std::string> arguments = line.names;
  arguments.insert(arguments.end(), line.rest.begin(), line.rest.end());
  std::string wrong = unknown_subcommand(arguments, tandem);
  if (wrong.empty()) {
    wrong = unknown_flag(line.rest, *line.command);
  }
  if (!wrong.empty()) {
    return usage_error(fmt::format("{} (see tandem {}--help)", wrong, path));
  }
  std::ranges::reverse(arguments);  // CLI11 takes them last first
  try {
    tandem.parse(std::move(arguments));
  } catch (const CLI::Success& success) {
    return tandem.exit(success);
  } catch (const CLI::ParseError& error) {
    return usage_error(fmt::format("{} (see tandem {}--help)", error.what(), path));
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
