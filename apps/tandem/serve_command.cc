// `tandem serve`: opens the model, listens, loads, serves until a signal, drains.
#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <thread>

#include "api/server.h"
#include "automatic_device.h"
#include "base/log.h"
#include "base/units.h"
#include "batches/data_folder.h"
#include "batches/service.h"
#include "cli/arguments.h"
#include "cli/exit_code.h"
#include "commands.h"
#include "loading_watch.h"
#include "node/loaded_model.h"
#include "node/node.h"
#include "node/record_file.h"
#include "observe/process_metrics.h"
#include "profile_bar.h"
#include "progress.h"
#include "serve_flags.h"
#include "service_manager.h"
#include "signals.h"
#include "start_log.h"

namespace tandem {
namespace {

// Answers what was accepted, for at most the drain timeout or until a second signal.
void drain(const ServeFlags& flags, const Signals& signals, const Clock& clock, Node& node,
           api::Server& server) {
  notify_service_manager("STOPPING=1\nSTATUS=answers accepted requests");
  log::info("draining: {} running, {} waiting (again to cancel them)", node.request_load().running,
            node.request_load().waiting);
  server.stop_accepting();
  node.drain();
  const Nanos deadline = clock.now() + flags.drain_timeout;
  bool cancelled = false;
  const Nanos grace = std::chrono::seconds(5);  // for cancelled answers to be written
  Nanos last = deadline + grace;
  while ((!node.idle() || !server.drained()) && clock.now() < last) {
    const bool again = signals.wait(std::chrono::milliseconds(20)) == Signals::Asked::kStop;
    if ((again || clock.now() > deadline) && !cancelled) {
      log::warn("cancelling {} requests",
                node.request_load().running + node.request_load().waiting);
      node.cancel_all();
      cancelled = true;
      last = std::min(last, clock.now() + grace);
    }
  }
}

// How many files and connections the process may have open: as many as the system lets it have.
void raise_descriptor_limit(const ServeFlags& flags) {
  constexpr rlim_t kOwnFiles = 64;  // logs, weights, libraries, the database, running batches
  // Beside each socket a file may be uploaded or downloaded.
  const rlim_t each = flags.batches.data_folder.empty() ? 1 : 2;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return;
  }
  const rlim_t wanted = each * static_cast<rlim_t>(flags.server.limits.max_connections) + kOwnFiles;
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = std::min(wanted, limit.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur < wanted) {
    log::warn(
        "this process may open {} files, fewer than --max-connections {} needs ({}); raise the "
        "limit "
        "(ulimit -n, LimitNOFILE=) or lower --max-connections",
        limit.rlim_cur, flags.server.limits.max_connections, wanted);
  }
}

void warn_of_expiry(const api::Server& server) {
  constexpr std::chrono::hours kSoon{14 * 24};
  if (const auto left = server.certificate_valid_for(); left && *left < kSoon) {
    log::warn("the TLS certificate expires in {} hours; renew it and send SIGHUP", left->count());
  }
}

void reload_certificate(api::Server& server) {
  if (const Status reloaded = server.reload_certificate(); !reloaded.ok()) {
    log::error("SIGHUP: the TLS certificate stays as it is: {}", reloaded.error().message);
    return;
  }
  log::info("SIGHUP: TLS certificate read, valid for {} hours; new connections get it",
            server.certificate_valid_for().value_or(std::chrono::hours(0)).count());
  warn_of_expiry(server);
}

void reload_keys(const ServeFlags& flags, api::Server& server) {
  const Result<std::vector<api::ApiKey>> keys = api::read_keys(flags.server.key_sources);
  if (!keys.ok()) {
    log::error("SIGHUP: the keys stay as they are: {}", keys.error().message);
    return;
  }
  server.set_api_keys(*keys);
  log::info("SIGHUP: {} API keys", keys->size());
}

void reload(const ServeFlags& flags, api::Server& server) {
  if (flags.server.key_sources.file.empty() && !flags.server.tls.wanted()) {
    log::info("SIGHUP: nothing to read again, there is no --api-key-file and no --ssl-certfile");
  }
  if (!flags.server.key_sources.file.empty()) {
    reload_keys(flags, server);
  }
  if (flags.server.tls.wanted()) {
    reload_certificate(server);
  }
}

// Or until the engine fails.
void serve_until_stop(const ServeFlags& flags, const Signals& signals, const Node& node,
                      api::Server& server) {
  while (node.failure().empty()) {
    switch (signals.wait(std::chrono::hours(1))) {
      case Signals::Asked::kStop:
        return;
      case Signals::Asked::kReload:
        reload(flags, server);
        break;
      case Signals::Asked::kNothing:
        break;
    }
  }
}

// The process ends with exit code 1 after this time, if it has not ended by itself: a lost GPU may
// hold any thread that has to do with it.
void end_within(Nanos time) {
  std::thread([time] {
    std::this_thread::sleep_for(time);
    log::error("the process did not end by itself in {}, and is ended", format_duration(time));
    std::_Exit(1);
  }).detach();
}

constexpr Nanos kTimeToEnd = std::chrono::seconds(15);

// The engine has failed, and all requests have got their error. Connections are still accepted for
// a while, so that probes learn from /health and /ready what is wrong.
void tell_of_failure(const Signals& signals, const Clock& clock) {
  constexpr Nanos kShown = std::chrono::seconds(3);
  end_within(kShown + kTimeToEnd);
  notify_service_manager("STOPPING=1\nSTATUS=the engine has failed");
  log::error("the engine has failed: no request is taken any more, and the process ends in {}",
             format_duration(kShown));
  const Nanos end = clock.now() + kShown;
  while (clock.now() < end && signals.wait(end - clock.now()) != Signals::Asked::kStop) {
  }
}

// Null without --data-folder.
Result<std::unique_ptr<batches::Service>> open_batches(ServeFlags& flags, const Clock& clock) {
  if (flags.batches.data_folder.empty()) {
    return std::unique_ptr<batches::Service>();
  }
  ASSIGN_OR_RETURN(
      std::unique_ptr<batches::Service> service,
      batches::Service::open(flags.batches, clock, static_cast<int64_t>(std::time(nullptr))));
  flags.server.batches = service.get();
  flags.server.metrics.push_back([&service = *service] { return service.metrics_text(); });
  return service;
}

// Batches leave half of the queue to other requests of their class.
batches::RunnerOptions runner_options(const ServeFlags& flags, const api::Server& server,
                                      const Instance& instance) {
  const int64_t queue = flags.node.max_queue_flex;
  const int64_t ahead = std::min(2 * int64_t{flags.node.max_num_seqs}, queue / 2);
  return {.sequences_ahead = std::max<int64_t>(1, ahead),
          .max_prompts = queue,
          .terms_of = [&server](const std::string& owner) { return server.terms_of(owner); },
          .make_order = [&instance] { return instance.make_queue_order(); },
          .block_tokens = instance.model().plan.block_tokens};
}

// The pages of the server about the node and the process, which both must outlive the server.
void add_reports(const Node& node, ServeFlags& flags) {
  flags.server.config_json = [&instance = *node.instances().front(), &flags] {
    return config_json(instance.config_json(), flags);
  };
  flags.server.models_json = [&node] { return node.status_json(); };
  flags.server.process_json = [] { return observe::process_json(); };
  flags.server.metrics.push_back([&node] { return node.metrics_text(); });
  flags.server.metrics.push_back([&flags] {
    return observe::build_info_text(flags.server.version, flags.server.commit) +
           observe::process_metrics_text();
  });
}

// Opens everything that serving needs, but loads no weights, makes no files and listens nowhere.
Status check(ServeFlags& flags, const Clock& clock) {
  RETURN_IF_ERROR(load_text(flags));
  ASSIGN_OR_RETURN(const SoleModel opened, open_model(flags.node, clock));
  log_start(flags, opened.model);
  RETURN_IF_ERROR(check_weights(opened.model));
  if (!flags.node.record_out.empty()) {
    RETURN_IF_ERROR(RecordFile::check(flags.node.record_out));
  }
  if (!flags.batches.data_folder.empty()) {
    RETURN_IF_ERROR(batches::DataFolder::check(flags.batches.data_folder));
  }
  RETURN_IF_ERROR(api::Server::check(flags.server));
  log::info("check: all in order; nothing was loaded");
  return {};
}

// The model by its name; false: stopped before it was there.
Result<bool> fetch(ServeFlags& flags, const Signals& signals) {
  bool stopped = false;
  const Status fetched = fetch_model(flags, [&] {
    stopped = stopped || signals.wait(Nanos{0}) == Signals::Asked::kStop;
    return stopped;
  });
  if (stopped) {
    log::info("stopped while the model was downloaded; the next start goes on there");
    return false;
  }
  RETURN_IF_ERROR(fetched);
  return true;
}

// Afterwards `flags` name the device that was chosen.
Result<std::unique_ptr<Node>> open_node(ServeFlags& flags, const Clock& clock) {
  ASSIGN_OR_RETURN(SoleModel opened, open_model(flags.node, clock));
  return Node::create(flags.node, std::move(opened), clock);
}

Status serve(ServeFlags& flags, cli::Command command) {
  const Signals signals;
  const SteadyClock clock;
  RETURN_IF_ERROR(start_log(flags));
  for (const std::string& line : cli::unread_variables(command, environ)) {
    log::warn("{}", line);
  }
  take_default_model(flags);
  ASSIGN_OR_RETURN(const bool fetched, fetch(flags, signals));
  if (!fetched) {
    return {};
  }
  RETURN_IF_ERROR(resolve_to_serve(flags));
  if (flags.check) {
    return check(flags, clock);
  }
  raise_descriptor_limit(flags);
  // Large bodies and answers go back to the system when they are freed; by default, the first large
  // one makes the heap keep all that follow.
  constexpr int kMappedBytes = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, kMappedBytes);
  ASSIGN_OR_RETURN(const TextParts parts, load_text(flags));
  ASSIGN_OR_RETURN(const std::unique_ptr<Node> node, open_node(flags, clock));
  node->set_failure_listener([&signals] { signals.wake(); });
  Instance& instance = *node->instances().front();
  log_start(flags, instance.model());
  if (parts.chat_template->is_plain()) {
    log::warn(
        "the model brings no chat template: /v1/chat/completions uses a plain one (role and text, "
        "a line each)");
  }

  const std::vector<openai::ModelServices> models{
      {.frontend = instance.frontend(),
       .tokenizer = *parts.tokenizer,
       .chat_template = *parts.chat_template,
       .defaults = request_defaults(instance.model().folder.generation)}};
  add_reports(*node, flags);
  ASSIGN_OR_RETURN(const std::unique_ptr<batches::Service> batch_service,
                   open_batches(flags, clock));
  ASSIGN_OR_RETURN(const std::unique_ptr<api::Server> server,
                   api::Server::start(flags.server, models));
  warn_of_expiry(*server);

  notify_service_manager("STATUS=loads the model");
  ProgressBar bar("loading weights", clock);
  ProfileBar profile_bar(clock);
  LoadingWatch watch(signals, 0, [&flags, &server] { reload(flags, *server); });
  RETURN_IF_ERROR(
      node->load([&](const model::LoadProgress& p) { bar.show(p.bytes_done, p.bytes_total); },
                 [&](double share, std::string_view what) { profile_bar.show(share, what); }));
  profile_bar.clear();
  bar.finish();
  log_ready(flags, instance, server->port());
  if (batch_service != nullptr) {
    batch_service->start(server->models(), runner_options(flags, *server, instance));
  }
  notify_service_manager("READY=1\nSTATUS=serves on port " + std::to_string(server->port()));

  if (!watch.finish()) {
    serve_until_stop(flags, signals, *node, *server);
  }
  if (!node->failure().empty()) {
    tell_of_failure(signals, clock);
  }
  if (batch_service != nullptr) {
    batch_service->request_stop();  // a slow disk must not delay the drain
  }
  drain(flags, signals, clock, *node, *server);
  if (batch_service != nullptr) {
    batch_service->stop();
  }
  // Also if it failed while it drained.
  if (const std::string reason = node->failure(); !reason.empty()) {
    end_within(kTimeToEnd);
    return Error{ErrorCode::kUnavailable, "stopped, because the engine failed: " + reason, ""};
  }
  log::info("stopped");
  return {};
}

}  // namespace

RunCommand describe_serve(cli::Command app) {
  auto flags = std::make_shared<ServeFlags>();
  add_serve_flags(app, *flags);
  return [flags, app] {
    const Status status = serve(*flags, app);
    if (!status.ok()) {
      log::error("{}", status.error().message);
      return flags->check ? 2 : cli::exit_code_of(status.error().code);
    }
    return 0;
  };
}

}  // namespace tandem
