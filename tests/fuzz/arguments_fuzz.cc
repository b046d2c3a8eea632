// A --config file of YAML, through to the command line that it becomes part of.
#include <CLI/CLI.hpp>

#include "arguments.h"
#include "fuzz/fuzz.h"

namespace tandem {
TANDEM_FUZZ_TARGET(input) {
  static const fuzz::MemoryFile file;
  file.write(input);
  CLI::App app("fuzz", "serve");
  int port = 0;
  std::string host;
  std::vector<std::string> names;
  app.add_option("--port", port);
  app.add_option("--host", host);
  app.add_option("--served-model-name", names);
  app.add_option("--config");
  const auto expanded = expand_config({"--config", file.path(), "--port=1"}, app);
  if (!expanded.ok()) {
    CHECK(!expanded.error().message.empty());
    return;
  }
  std::vector<std::string> arguments = *expanded;
  CHECK(!arguments.empty() && arguments.back() == "--port=1");
  std::ranges::reverse(arguments);
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::Error& error) {
    fuzz::use(std::string_view(error.what()).size());
  }
}
}  // namespace tandem
