// The one binary: picks the subcommand and turns usage errors into one line that names the cure.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "cli/arguments.h"
#include "commands.h"
#include "device/open/open.h"
#include "kernels/isa.h"
#include "model_command.h"
#include "version.h"
#include "vllm_flags.h"

namespace tandem {
namespace {

int usage_error(const std::string& message) {
  fmt::print(stderr, "tandem: {}\n", message);
  return 2;
}

// "0.1.0 (54d7ab1b95b7)".
std::string version_text() {
  return *kCommit == '\0' ? kVersion : fmt::format("{} ({})", kVersion, kCommit);
}

// What --version -v adds: where this build can compute on this machine, and why not elsewhere.
std::string back_ends_text() {
  const Result<std::string> cuda = device::find_device({.backend = "cuda", .options = ""});
  return fmt::format("cpu: {} kernels\n{}\n", kernels::isa_name(kernels::available_isas().back()),
                     cuda.ok() ? *cuda : cuda.error().message);
}

bool wants_back_ends(const std::vector<std::string>& arguments) {
  return arguments.size() == 2 && arguments[0] == "--version" &&
         (arguments[1] == "-v" || arguments[1] == "--verbose");
}

// The words that name the subcommand, and what follows them.
struct NamedCommand {
  cli::Command command;  // the innermost that is named
  std::vector<std::string> names;
  std::vector<std::string> rest;
};

NamedCommand split(cli::Command root, const std::vector<std::string>& arguments) {
  NamedCommand line{.command = root, .names = {}, .rest = arguments};
  while (!line.rest.empty()) {
    const std::optional<cli::Command> inner = line.command.find_subcommand(line.rest.front());
    if (!inner) {
      break;
    }
    line.command = *inner;
    line.names.push_back(line.rest.front());
    line.rest.erase(line.rest.begin());
  }
  return line;
}

// Puts the flags of a --config file before the others, and turns vLLM's ways of writing flags into
// ours. `simulate` reads its file itself, which may hold a sweep.
Status expand(NamedCommand& line, cli::Command serve, cli::Command simulate) {
  if (!line.command.has_option("--config")) {
    return {};
  }
  line.rest = plain_flags(std::move(line.rest), line.command);
  if (line.command == simulate) {
    return {};
  }
  const bool named = std::ranges::any_of(line.rest, [](const std::string& argument) {
    return argument == "--config" || argument.starts_with("--config=");
  });
  const char* variable = std::getenv("TANDEM_CONFIG");  // NOLINT(concurrency-mt-unsafe): at start
  if (line.command == serve && !named && variable != nullptr && *variable != '\0') {
    line.rest.insert(line.rest.begin(), fmt::format("--config={}", variable));
  }
  ASSIGN_OR_RETURN(line.rest, cli::expand_config(line.rest, line.command));
  line.rest = plain_flags(std::move(line.rest), line.command);
  return {};
}

int run(int argc, char** argv) {
  CHECK(log::start("info").ok());  // until the command sets its own level
  cli::CommandLine command_line(
      "Tandem: LLM inference that shares a model's work between accelerator and CPUs", "tandem");
  command_line.set_version_flag(version_text());
  const cli::Command tandem = command_line.root();
  tandem.require_subcommand();
  int model_exit = 0;
  const cli::Command model = add_model_command(tandem, model_exit);
  const std::vector<Subcommand> commands = {
      add_serve_command(tandem),      add_replay_command(tandem),  add_batch_command(tandem),
      add_bench_command(tandem),      add_profile_command(tandem), add_tune_command(tandem),
      add_completion_command(tandem), add_manual_command(tandem),  add_pull_command(tandem),
      add_list_command(tandem),       add_chat_command(tandem),    add_simulate_command(tandem)};
  cli::name_environment(commands.front().command);
  if (argc <= 1) {
    fmt::print(stderr, "{}", command_line.help());
    return 2;
  }

  if (wants_back_ends({argv + 1, argv + argc})) {
    fmt::print("{}\n{}", version_text(), back_ends_text());
    return 0;
  }

  NamedCommand line = split(tandem, {argv + 1, argv + argc});
  std::string path;  // "bench serve "
  for (const std::string& name : line.names) {
    path += name + " ";
  }
  if (const Status expanded = expand(line, commands.front().command, commands.back().command);
      !expanded.ok()) {
    return usage_error(expanded.error().message);
  }
  std::vector<std::string> arguments = line.names;
  arguments.insert(arguments.end(), line.rest.begin(), line.rest.end());
  std::string wrong = cli::unknown_subcommand(arguments, tandem);
  if (wrong.empty()) {
    wrong = cli::unknown_flag(line.rest, line.command);
  }
  if (!wrong.empty()) {
    return usage_error(fmt::format("{} (see tandem {}--help)", wrong, path));
  }
  const Result<std::optional<int>> done = command_line.parse(std::move(arguments));
  if (!done.ok()) {
    return usage_error(fmt::format("{} (see tandem {}--help)", done.error().message, path));
  }
  if (done->has_value()) {
    return **done;
  }
  for (const Subcommand& subcommand : commands) {
    if (subcommand.command.parsed()) {
      return subcommand.run();
    }
  }
  return model.parsed() ? model_exit : 2;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) { return tandem::run(argc, argv); }
