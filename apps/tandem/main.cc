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

struct Subcommand {
  const char* name;
  const char* description;
  RunCommand (*describe)(cli::Command);
};

constexpr Subcommand kSubcommands[] = {
    {"model", "Make and inspect model folders", &describe_model},
    {"serve", "Serve a model over the OpenAI API", &describe_serve},
    {"replay", "Run a record of serve --record-out again and compare", &describe_replay},
    {"batch", "Answer files of requests without a server", &describe_batch},
    {"bench", "Measure parts of the server or a running one", &describe_bench},
    {"profile", "Measure how long steps of a model take here, for serve --profile",
     &describe_profile},
    {"tune",
     "Find the step budget of the policy hygen, or the rate of hygen_star, that serves the most "
     "best effort and keeps latency-sensitive requests within a tolerance of their times without "
     "best effort, on the simulated machine",
     &describe_tune},
    {"completion", "Print the completion script of a shell", &describe_completion},
    {"manual", "Print this program's manual page, for man -l -", &describe_manual},
    {"pull", "Download a model by its name into the cache of Hugging Face's tools", &describe_pull},
    {"list", "List the models of the cache, and whether they can be served", &describe_list},
    {"chat", "Talk to a running server in the terminal", &describe_chat},
    {"simulate", "Run a load on a simulated machine, in virtual time (docs/simulation.md)",
     &describe_simulate}};

// All subcommands, with the flags of the command that `word` names: making the flags of all would
// take longer than some commands run. The function that runs this command; null: there is none.
RunCommand add_subcommands(cli::Command tandem, const std::string& word) {
  tandem.require_subcommand();
  const bool describes_all = word == "completion" || word == "manual";
  RunCommand chosen;
  for (const Subcommand& each : kSubcommands) {
    const cli::Command app = tandem.add_subcommand(each.name, each.description);
    if (word == each.name) {
      chosen = each.describe(app);
    } else if (describes_all) {
      static_cast<void>(each.describe(app));
    }
  }
  return chosen;
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
  if (line.command == serve) {  // keys of all sources hold
    const std::vector<std::string> keys = cli::flags_of_variable(serve, "--api-key");
    line.rest.insert(line.rest.begin(), keys.begin(), keys.end());
  }
  return {};
}

int run(int argc, char** argv) {
  CHECK(log::start("info").ok());  // until the command sets its own level
  cli::CommandLine command_line(
      "Tandem: LLM inference that shares a model's work between accelerator and CPUs", "tandem");
  command_line.set_version_flag(version_text());
  const cli::Command tandem = command_line.root();
  const RunCommand chosen = add_subcommands(tandem, argc <= 1 ? "" : argv[1]);
  const cli::Command serve = *tandem.find_subcommand("serve");
  cli::name_environment(serve);
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
  if (const Status expanded = expand(line, serve, *tandem.find_subcommand("simulate"));
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
  return chosen ? chosen() : 2;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) { return tandem::run(argc, argv); }
