// `tandem serve`: opens the model, listens, loads, serves until a signal, drains.
#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "api/server.h"
#include "base/log.h"
#include "base/units.h"
#include "commands.h"
#include "device/cpu/proc_text.h"
#include "model_command.h"
#include "profile_bar.h"
#include "progress.h"
#include "read_tokenizer.h"
#include "serve_flags.h"
#include "signals.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem {
namespace {

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

void print_start(const ServeFlags& flags, const Node& node) {
  const model::ModelConfig& shape = node.parts().folder.config;
  log::info("Tandem {}: {} ({} layers, hidden {}, {}/{} heads, {} parameters), {}", TANDEM_VERSION,
            shape.architecture_name, shape.layers, shape.hidden, shape.heads, shape.kv_heads,
            rounded_count(model::parameter_count(shape)), node.parts().device->caps().name);
  for (const device::NodeUse& one : node.parts().device->caps().nodes) {
    log::info("NUMA node {}: {} compute thread{} on CPUs {}, {} of {} free", one.id, one.threads,
              one.threads == 1 ? "" : "s", device::format_ranges(one.cpus),
              format_bytes(one.free_bytes), format_bytes(one.memory_bytes));
  }
  log::info("configuration: {}", config_json(node.config_json(), flags));
  log::info("memory plan:\n{}", format_plan(node.parts().plan));
  if (flags.node.emulation.has_value() && flags.node.emulation->faults.any()) {
    log::warn("FAULTS ARE PLANTED into this server ({}): for drills and tests, not for use",
              device::describe_pace(*flags.node.emulation));
  }
  if (!is_loopback(flags.server.host) && flags.server.api_keys.empty()) {
    log::warn(
        "listening on {} without --api-key: everyone who reaches this address may use the model",
        flags.server.host);
  }
  if (!is_loopback(flags.server.host) && !flags.server.api_keys.empty() &&
      !flags.server.tls.wanted()) {
    log::warn(
        "listening on {} without --ssl-certfile: keys and prompts cross the network in the clear "
        "unless a proxy before this server encrypts them",
        flags.server.host);
  }
}

void print_ready(const ServeFlags& flags, const Node& node, uint16_t port,
                 const std::string& name) {
  const std::string base = fmt::format(
      "{}://{}:{}/v1", flags.server.tls.wanted() ? "https" : "http", flags.server.host, port);
  log::info("ready: {} serves '{}', up to {} tokens a sequence", base, name,
            node.parts().plan.max_model_len);
  log::info(
      "try: curl {}/completions -H 'Content-Type: application/json' -d "
      "'{{\"model\":\"{}\",\"prompt\":\"Once upon "
      "a time\",\"max_tokens\":32}}'",
      base, name);
}

// Answers what was accepted, for at most the drain timeout or until a second signal.
void drain(const ServeFlags& flags, const Signals& signals, const Clock& clock, Node& node,
           api::Server& server) {
  log::info("draining: {} running, {} waiting (again to cancel them)",
            node.frontend().load().running, node.frontend().load().waiting);
  server.stop_accepting();
  node.frontend().drain();
  const Nanos deadline = clock.now() + flags.drain;
  bool cancelled = false;
  const Nanos grace = std::chrono::seconds(5);  // for cancelled answers to be written
  Nanos last = deadline + grace;
  while ((!node.frontend().idle() || !server.drained()) && clock.now() < last) {
    const bool again = signals.wait(std::chrono::milliseconds(20)) == Signals::Asked::kStop;
    if ((again || clock.now() > deadline) && !cancelled) {
      log::warn("cancelling {} requests",
                node.frontend().load().running + node.frontend().load().waiting);
      node.frontend().cancel_all();
      cancelled = true;
      last = std::min(last, clock.now() + grace);
    }
  }
}

// How many files and connections the process may have open: as many as the system lets it have.
void raise_descriptor_limit(const ServeFlags& flags) {
  constexpr rlim_t kOwnFiles = 64;  // logs, weights, libraries
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return;
  }
  const rlim_t wanted = static_cast<rlim_t>(flags.server.limits.max_connections) + kOwnFiles;
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
  const Result<std::vector<api::ApiKey>> keys = api_keys(flags);
  if (!keys.ok()) {
    log::error("SIGHUP: the keys stay as they are: {}", keys.error().message);
    return;
  }
  server.set_api_keys(*keys);
  log::info("SIGHUP: {} API keys", keys->size());
}

void reload(const ServeFlags& flags, api::Server& server) {
  if (flags.api_key_file.empty() && !flags.server.tls.wanted()) {
    log::info("SIGHUP: nothing to read again, there is no --api-key-file and no --ssl-certfile");
  }
  if (!flags.api_key_file.empty()) {
    reload_keys(flags, server);
  }
  if (flags.server.tls.wanted()) {
    reload_certificate(server);
  }
}

void serve_until_stop(const ServeFlags& flags, const Signals& signals, api::Server& server) {
  while (true) {
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

Status serve(ServeFlags& flags) {
  const Signals signals;
  const SteadyClock clock;
  RETURN_IF_ERROR(log::start(flags.log_level));
  RETURN_IF_ERROR(resolve(flags));
  raise_descriptor_limit(flags);
  // Large bodies and answers go back to the system when they are freed; by default, the first large
  // one makes the heap keep all that follow.
  constexpr int kMappedBytes = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, kMappedBytes);
  ASSIGN_OR_RETURN(const std::unique_ptr<text::Tokenizer> tokenizer, read_tokenizer(flags.node));
  ASSIGN_OR_RETURN(const std::unique_ptr<Node> node, Node::open(flags.node, clock));
  print_start(flags, *node);
  ASSIGN_OR_RETURN(const text::ChatTemplate chat_template,
                   text::load_chat_template(node->parts().folder.path));
  if (chat_template.is_plain()) {
    log::warn(
        "the model brings no chat template: /v1/chat/completions uses a plain one (role and text, "
        "a line each)");
  }

  const api::TextServices text{*tokenizer, chat_template,
                               request_defaults(node->parts().folder.generation)};
  flags.server.config_json = [&node, &flags] { return config_json(node->config_json(), flags); };
  flags.server.metrics.push_back([&node] { return node->metrics_text(); });
  ASSIGN_OR_RETURN(const std::unique_ptr<api::Server> server,
                   api::Server::start(flags.server, node->frontend(), text));
  warn_of_expiry(*server);

  ProgressBar bar("loading weights", clock);
  ProfileBar profile_bar(clock);
  RETURN_IF_ERROR(
      node->load([&](const model::LoadProgress& p) { bar.show(p.bytes_done, p.bytes_total); },
                 [&](double share, std::string_view what) { profile_bar.show(share, what); }));
  profile_bar.clear();
  bar.finish();
  print_ready(flags, *node, server->port(), node->frontend().model().names.front());

  serve_until_stop(flags, signals, *server);
  drain(flags, signals, clock, *node, *server);
  log::info("stopped");
  return {};
}

}  // namespace

Command add_serve_command(CLI::App& tandem) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* app = tandem.add_subcommand("serve", "Serve a model over the OpenAI API");
  add_serve_flags(*app, *flags);
  return {app, [flags] {
            const Status status = serve(*flags);
            if (!status.ok()) {
              log::error("{}", status.error().message);
              return status.error().code == ErrorCode::kInvalidArgument ? 2 : 1;
            }
            return 0;
          }};
}

}  // namespace tandem
