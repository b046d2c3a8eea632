// `tandem replay`: runs a record of `serve --record-out` again and says whether everything came out
// the same.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>

#include "base/clock.h"
#include "base/log.h"
#include "commands.h"
#include "node/replay.h"
#include "numa_option.h"

namespace tandem {
namespace {

struct ReplayFlags {
  std::string record;
  NodeOptions node;
};

int run_replay(ReplayFlags& flags) {
  if (const Status log_status = log::start("warning"); !log_status.ok()) {
    return 1;
  }
  if (const char* isa = std::getenv("TANDEM_ISA"); isa != nullptr && *isa != '\0') {
    const auto parsed = kernels::parse_choice(isa);
    if (!parsed.ok()) {
      log::error("{}", parsed.error().message);
      return 2;
    }
    flags.node.device.isa = *parsed;
  }
  const Result<ReplayReport> report = replay(flags.record, flags.node, SteadyClock(), {});
  if (!report.ok()) {
    log::error("{}", report.error().message);
    return 1;
  }
  fmt::print("{} steps, {} requests, {} tokens replayed{}\n", report->steps, report->requests,
             report->tokens, report->complete ? "" : " (the record was cut before its end)");
  if (!report->other_kernels.empty()) {
    fmt::print("{}\n", report->other_kernels);
  }
  if (!report->first_difference.empty()) {
    fmt::print("DIFFERENT:\n{}\n", report->first_difference);
    return 1;
  }
  fmt::print("identical: every view, plan and token\n");
  return 0;
}

}  // namespace

Subcommand add_replay_command(cli::Command tandem) {
  auto flags = std::make_shared<ReplayFlags>();
  const cli::Command app =
      tandem.add_subcommand("replay", "Run a record of serve --record-out again and compare");
  app.add_option("record", flags->record, "File written by serve --record-out").required();
  app.add_option("--model", flags->node.model, "The model's folder").required();
  app.add_option("--threads", flags->node.device.threads,
                 "Compute threads (default: one for each core this process may use)");
  add_numa_option(app, flags->node.device.numa);
  return {app, [flags] { return run_replay(*flags); }};
}

}  // namespace tandem
