#include "scenario_run.h"

#include <optional>
#include <utility>
#include <vector>

#include "vllm_flags.h"

namespace tandem {

KnownKeys::KnownKeys(cli::Command options)
    : keys_{.options = options, .stream = stream_line_.root(), .engine = engine_line_.root()} {
  stream_.of_simulation = true;
  bench::add_stream_flags(stream_line_.root(), stream_);
  add_engine_flags(engine_line_.root(), engine_);
}

Result<std::unique_ptr<ReadRun>> read_run(const cli::ConfigNode& options, const std::string& file) {
  auto run = std::make_unique<ReadRun>();
  ASSIGN_OR_RETURN(std::vector<std::string> arguments,
                   cli::config_flags(options, file, run->command));
  arguments = plain_flags(std::move(arguments), run->command);
  arguments.insert(arguments.begin(), "simulate");
  const Result<std::optional<int>> done = run->line.parse(std::move(arguments));
  if (!done.ok()) {
    return done.error();
  }
  return run;
}

}  // namespace tandem
