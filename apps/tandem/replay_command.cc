// `tandem replay`: runs a record of `serve --record-out` again and says whether everything came out
// the same.
#include <fmt/format.h>

#include <memory>

#include "base/clock.h"
#include "base/log.h"
#include "cli/exit_code.h"
#include "cli/option_flags.h"
#include "commands.h"
#include "node/replay.h"
#include "shared_options.h"

namespace tandem {
namespace {

struct ReplayFlags {
  std::string record;
  std::string log_level = "warning";
  NodeOptions node;
};

int run_replay(ReplayFlags& flags) {
  if (const Status log_status = log::start(flags.log_level); !log_status.ok()) {
    return 1;
  }
  const Result<ReplayReport> report = replay(flags.record, flags.node, SteadyClock(), {});
  if (!report.ok()) {
    log::error("{}", report.error().message);
    return cli::exit_code_of(report.error().code);
  }
  fmt::print("{} steps, {} requests, {} tokens replayed{}\n", report->steps, report->requests,
             report->tokens, report->complete ? "" : " (the record was cut before its end)");
  if (!report->other_kernels.empty()) {
    fmt::print("{}\n", report->other_kernels);
  }
  if (!report->first_difference.empty()) {
    fmt::print("DIFFERENT:\n{}\n", report->first_difference);
    if (report->other_build) {
      fmt::print(
          "the record does not name this build's computing code, and other code may round "
          "differently: replay it with the build that made it\n");
    }
    return 1;
  }
  fmt::print("identical: every view, plan and token\n");
  return 0;
}

}  // namespace

RunCommand describe_replay(cli::Command app) {
  auto flags = std::make_shared<ReplayFlags>();
  app.add_option("record", flags->record, "File written by serve --record-out").required();
  OptionDescriptor model = model_option(flags->node);
  model.other_names.clear();  // the record is given by place
  cli::add_option(app, model).required();
  add_node_options(app, flags->node, {"threads", "numa", "isa"});
  cli::add_option(app, log_level_option(flags->log_level));
  return [flags] { return run_replay(*flags); };
}

}  // namespace tandem
