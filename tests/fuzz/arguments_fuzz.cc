// A --config file of YAML, through to the command line that it becomes part of.
#include "cli/arguments.h"
#include "fuzz/fuzz.h"

namespace tandem {
TANDEM_FUZZ_TARGET(input) {
  static const fuzz::MemoryFile file;
  file.write(input);
  cli::CommandLine command_line("fuzz", "serve");
  const cli::Command command = command_line.root();
  int port = 0;
  std::string host;
  std::vector<std::string> names;
  command.add_option("--port", port, "");
  command.add_option("--host", host, "");
  command.add_option("--served-model-name", names, "");
  command.add_option("--config", "");
  const auto expanded = cli::expand_config({"--config", file.path(), "--port=1"}, command);
  if (!expanded.ok()) {
    CHECK(!expanded.error().message.empty());
    return;
  }
  std::vector<std::string> arguments = *expanded;
  CHECK(!arguments.empty() && arguments.back() == "--port=1");
  const auto parsed = command_line.parse(std::move(arguments));
  if (!parsed.ok()) {
    fuzz::use(parsed.error().message.size());
  }
}
}  // namespace tandem
