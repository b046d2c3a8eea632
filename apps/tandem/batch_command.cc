// `tandem batch run`: answers a file of OpenAI batch lines without a server, all of them as one
// full batch.
#include <fmt/format.h>

#include <ctime>
#include <memory>

#include "base/log.h"
#include "base/units.h"
#include "batch_progress.h"
#include "cli/exit_code.h"
#include "cli/option_flags.h"
#include "commands.h"
#include "jobs/batch_run.h"
#include "loading_watch.h"
#include "node/node.h"
#include "node/policy_choice.h"
#include "profile_bar.h"
#include "progress.h"
#include "serve_flags.h"
#include "shared_options.h"
#include "signals.h"

namespace tandem {
namespace {

constexpr int kExitStopped = 130;       // as shells report Ctrl-C
constexpr int32_t kMaxQueue = 1 << 24;  // the run itself bounds how much it submits

struct BatchFlags {
  ServeFlags serve;  // the node's part
  std::string input;
  std::string output;
  std::string max_line = "32MiB";
};

// The machine's local time, for templates that print the date.
std::chrono::local_seconds local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  return std::chrono::local_seconds(std::chrono::seconds(now + parts.tm_gmtoff));
}

// Answers what is open; leaves the node idle.
Result<jobs::BatchProgress> answer(jobs::BatchInput& input, jobs::BatchOutput& output,
                                   const jobs::BatchProgress& start, BatchFlags& flags,
                                   const Signals& signals) {
  const SteadyClock clock;
  bool stopped_early = false;
  const Status fetched = fetch_model(flags.serve, [&] {
    stopped_early = stopped_early || signals.wait(Nanos{0}) != Signals::Asked::kNothing;
    return stopped_early;
  });
  if (stopped_early) {
    jobs::BatchProgress progress = start;
    progress.stopped = true;
    return progress;
  }
  RETURN_IF_ERROR(fetched);
  RETURN_IF_ERROR(resolve(flags.serve));
  flags.serve.node.max_queue = kMaxQueue;
  flags.serve.node.max_queue_flex = kMaxQueue;
  choose_plain_policy(flags.serve.node);  // all lines are best effort
  ASSIGN_OR_RETURN(const TextParts text, load_text(flags.serve));
  ASSIGN_OR_RETURN(const std::unique_ptr<Node> node, Node::open(flags.serve.node, clock));
  ProgressBar loading("loading weights", clock);
  ProfileBar profile_bar(clock);
  LoadingWatch watch(signals, kExitStopped, nullptr);
  RETURN_IF_ERROR(
      node->load([&](const model::LoadProgress& p) { loading.show(p.bytes_done, p.bytes_total); },
                 [&](double share, std::string_view what) { profile_bar.show(share, what); }));
  profile_bar.clear();
  loading.finish();
  const bool stopped = watch.finish();

  Instance& instance = *node->instances().front();
  const openai::ModelDirectory models(
      {{.frontend = instance.frontend(),
        .tokenizer = *text.tokenizer,
        .chat_template = *text.chat_template,
        .defaults = request_defaults(instance.model().folder.generation)}},
      {}, local_time);
  BatchBar bar(clock);
  jobs::BatchRunOptions options;
  jobs::LineOrder order({.max_sequences_ahead = 2 * int64_t{flags.serve.node.max_num_seqs},
                         .make_order = [&instance] { return instance.make_queue_order(); },
                         .block_tokens = instance.model().plan.block_tokens});
  options.order = &order;
  // A closed terminal stops it, too.
  options.should_stop = [&signals, stopped] {
    return stopped || signals.wait(Nanos{0}) != Signals::Asked::kNothing;
  };
  options.on_progress = [&bar](const jobs::BatchProgress& p) { bar.show(p); };
  options.unix_seconds = [] { return static_cast<int64_t>(std::time(nullptr)); };
  Result<jobs::BatchProgress> progress =
      jobs::run_batch(input, output, start, models, clock, options);
  if (progress.ok()) {
    bar.finish(*progress);
  }
  return progress;
}

Result<int> run_batch(BatchFlags& flags) {
  const Signals signals;
  RETURN_IF_ERROR(start_log(flags.serve));
  const Result<int64_t> max_line = parse_bytes(flags.max_line);
  if (!max_line.ok() || *max_line < 1 || *max_line > (int64_t{1} << 30)) {
    return invalid_argument("--max-line-size: give a size from 1 byte to 1GiB", "max-line-size");
  }
  ASSIGN_OR_RETURN(jobs::BatchInput input, jobs::BatchInput::open(flags.input, *max_line));
  std::error_code ignored;
  if (std::filesystem::equivalent(flags.input, flags.output, ignored)) {
    return invalid_argument("the output is the batch itself; name another file with -o", "output");
  }
  ASSIGN_OR_RETURN(jobs::BatchOutput output, jobs::BatchOutput::open(flags.output));
  ASSIGN_OR_RETURN(const jobs::BatchProgress start, jobs::inspect_batch(input, output.written()));
  if (output.written().torn_bytes > 0) {
    log::warn("'{}' ended in a torn line: {} bytes cut off", flags.output,
              output.written().torn_bytes);
  }
  if (output.written().zeroed_bytes > 0) {
    log::warn(
        "'{}' held zeros where a loss of power kept bytes from the disk: {} bytes taken out; what "
        "they answered is asked again",
        flags.output, output.written().zeroed_bytes);
  }
  if (start.before > 0) {
    log::info("going on: {} of {} lines have their answer already, {} of them errors", start.before,
              start.total, output.written().failed);
  }
  if (start.before == start.total) {
    log::info("batch: all {} lines are answered in '{}'", start.total, flags.output);
    return 0;
  }
  const Result<jobs::BatchProgress> progress = answer(input, output, start, flags, signals);
  if (!progress.ok()) {
    return progress.error();
  }
  if (progress->stopped) {
    log::warn("stopped; what was not finished is done when the same command runs again");
    return kExitStopped;
  }
  return 0;
}

}  // namespace

RunCommand describe_batch(cli::Command app) {
  auto flags = std::make_shared<BatchFlags>();
  app.require_subcommand();
  const cli::Command run = app.add_subcommand(
      "run", "Answer a file of OpenAI batch lines; the same command again goes on after a stop");
  run.add_option("input", flags->input, "File with one request a line").required();
  run.add_option("-o,--output", flags->output, "File the answers are appended to").required();
  OptionDescriptor model = model_or_hub_option(flags->serve.node);
  model.other_names.clear();  // the input is given by place
  cli::add_option(run, model).required();
  run.add_option("--max-line-size", flags->max_line, "Longest line of the input")
      .capture_default_str();
  add_log_flags(run, flags->serve, "Batch");
  run.group_new_options("Batch");
  cli::add_options(run, hub::hub_option_table(flags->serve.hub));
  add_text_flags(run, flags->serve);
  add_node_flags(run, flags->serve);
  run.let_last_win();
  return [flags] {
    const Result<int> code = run_batch(*flags);
    if (code.ok()) {
      return *code;
    }
    const ErrorCode kind = code.error().code;
    log::error("{}{}", code.error().message,
               kind == ErrorCode::kResourceExhausted
                   ? "; free some space and run the same command again: it goes on"
                   : "");
    return cli::exit_code_of(kind);
  };
}

}  // namespace tandem
