#include "bench/serve_bench.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/date.h"
#include "base/log.h"
#include "base/units.h"
#include "bench/command_flags.h"
#include "bench/load_progress.h"
#include "cli/exit_code.h"
#include "loadgen/client.h"
#include "loadgen/generator.h"
#include "loadgen/recorded.h"
#include "loadgen/report_html.h"
#include "loadgen/result_json.h"
#include "loadgen/run_info.h"
#include "workload/number.h"

namespace tandem::bench {

namespace {

using Json = nlohmann::ordered_json;

// The arguments of this process, without credentials.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) {
    arguments.push_back(argument);
  }
  return loadgen::recorded_command(arguments);
}

Result<std::vector<double>> parse_percentiles(const std::string& text) {
  std::vector<double> percentiles;
  for (const std::string_view part : workload::split(text, ',')) {
    const std::optional<double> percent = workload::read_number(part);
    if (!percent || *percent < 0 || *percent > 100) {
      return invalid_argument(
          fmt::format("--metric-percentiles: '{}' is not a number from 0 to 100", part),
          "metric-percentiles");
    }
    percentiles.push_back(*percent);
  }
  return percentiles;
}

Result<std::vector<std::string>> parse_metrics(const std::string& text) {
  std::vector<std::string> metrics;
  for (const std::string_view part : workload::split(text, ',')) {
    if (part != "ttft" && part != "tpot" && part != "itl" && part != "e2el") {
      return invalid_argument(
          fmt::format("--percentile-metrics: '{}' is none of ttft, tpot, itl, e2el", part),
          "percentile-metrics");
    }
    metrics.emplace_back(part);
  }
  return metrics;
}

Result<loadgen::EndpointOptions> endpoint_of(const ServeBenchFlags& flags) {
  loadgen::EndpointOptions endpoint;
  ASSIGN_OR_RETURN(endpoint.url,
                   loadgen::parse_url(flags.base_url.empty()
                                          ? fmt::format("http://{}:{}", flags.host, flags.port)
                                          : flags.base_url));
  if (endpoint.url.path.ends_with("/v1")) {  // the base of the OpenAI clients
    endpoint.url.path.resize(endpoint.url.path.size() - 3);
  }
  const bool chat =
      flags.backend == "openai-chat" || flags.endpoint.find("chat") != std::string::npos;
  endpoint.endpoint = chat ? loadgen::Endpoint::kChat : loadgen::Endpoint::kCompletions;
  endpoint.route = !flags.endpoint.empty() ? flags.endpoint
                   : chat                  ? "/v1/chat/completions"
                                           : "/v1/completions";
  if (!endpoint.route.starts_with('/') ||
      endpoint.route.find_first_of(" \r\n") != endpoint.route.npos) {
    return invalid_argument("--endpoint must be a path such as /v1/completions", "endpoint");
  }
  endpoint.api_key = flags.api_key;
  if (endpoint.api_key.find_first_of("\r\n") != std::string::npos) {
    return invalid_argument("--api-key has a line break", "api-key");
  }
  for (const std::string& header : flags.stream.headers) {
    ASSIGN_OR_RETURN(const std::string line, loadgen::header_line(header));
    endpoint.headers += line;
  }
  endpoint.ignore_eos = flags.ignore_eos;
  endpoint.temperature = flags.temperature;
  if (!flags.extra_body.empty()) {
    endpoint.extra_body = nlohmann::json::parse(flags.extra_body, nullptr, false);
    if (!endpoint.extra_body.is_object()) {
      return invalid_argument("--extra-body must be a JSON object", "extra-body");
    }
  }
  return endpoint;
}

// Everything of a run, in the order it is needed.
class ServeBench {
 public:
  explicit ServeBench(const ServeBenchFlags& flags) : flags_(flags) {}

  Result<int> run() {
    RETURN_IF_ERROR(read_flags());
    RETURN_IF_ERROR(meet_server());
    ASSIGN_OR_RETURN(const loadgen::Load load, loadgen::make_load(streams_, flags_.seed));
    say(load);
    ASSIGN_OR_RETURN(const loadgen::PromptUnits units, find_units(load));
    RETURN_IF_ERROR(warm_up(load, units));
    info_.date = utc_date_text();
    // So that requests leave on time beside a server that uses every core. Without the right to it,
    // the priority stays as it is; lateness is measured either way.
    constexpr int kPriority = -10;
    (void)setpriority(PRIO_PROCESS, 0, kPriority);
    LoadProgress progress;
    loadgen::Generator generator(io_, *client_, clock_, endpoint_, load, units);
    const loadgen::RunResult result = generator.run(
        flags_.max_concurrency, [&](const loadgen::LiveCounts& counts) { progress.show(counts); });
    progress.finish();
    const loadgen::Summary summary = loadgen::summarize(load, result);
    fmt::print("{}", summary_text(summary, info_.percentile_metrics, info_.percentiles));
    std::fflush(stdout);
    for (const std::string& warning : summary.warnings) {
      log::warn("{}", warning);
    }
    RETURN_IF_ERROR(write(load, result, summary));
    return summary.all.done > 0 ? 0 : 1;
  }

 private:
  Status read_flags() {
    RETURN_IF_ERROR(log::start("info"));
    if (flags_.api_key.empty()) {
      if (const char* key = std::getenv("OPENAI_API_KEY"); key != nullptr) {
        flags_.api_key = key;
      }
    }
    ASSIGN_OR_RETURN(endpoint_, endpoint_of(flags_));
    ASSIGN_OR_RETURN(streams_, make_streams(flags_.stream, flags_.streams));
    RETURN_IF_ERROR(chat_for_tasks());
    ASSIGN_OR_RETURN(info_.percentiles, parse_percentiles(flags_.metric_percentiles));
    ASSIGN_OR_RETURN(info_.percentile_metrics, parse_metrics(flags_.percentile_metrics));
    ASSIGN_OR_RETURN(client_options_.silence, parse_duration(flags_.request_timeout));
    client_options_.trust = {.authorities = flags_.cacert,
                             .check = flags_.insecure ? loadgen::CertificateCheck::kOff
                                                      : loadgen::CertificateCheck::kOn};
    for (const std::string& pair : flags_.metadata) {
      const size_t equals = pair.find('=');
      if (equals == std::string::npos) {
        return invalid_argument("--metadata takes KEY=VALUE", "metadata");
      }
      info_.metadata[pair.substr(0, equals)] = pair.substr(equals + 1);
    }
    info_.tandem_version = flags_.version;
    info_.commit = flags_.commit;
    info_.command = command_line();
    info_.label = flags_.label;
    info_.backend = endpoint_.endpoint == loadgen::Endpoint::kChat ? "openai-chat" : "openai";
    info_.url = endpoint_.url.text();
    info_.request_rate = flags_.stream.request_rate;
    info_.burstiness = flags_.stream.burstiness;
    info_.max_concurrency = flags_.max_concurrency;
    info_.config = flags_json(*flags_.command);
    info_.machine = loadgen::describe_machine();
    return {};
  }

  // Tasks are conversations: without an --endpoint of the user's they choose it.
  Status chat_for_tasks() {
    const bool asks = std::ranges::any_of(
        streams_, [](const loadgen::LoadStream& stream) { return stream.tasks != nullptr; });
    if (!asks || endpoint_.endpoint == loadgen::Endpoint::kChat) {
      return {};
    }
    if (!flags_.endpoint.empty()) {
      return invalid_argument(
          fmt::format("--tasks asks chats, and --endpoint {} is none; leave --endpoint out",
                      flags_.endpoint),
          "endpoint");
    }
    endpoint_.endpoint = loadgen::Endpoint::kChat;
    endpoint_.route = "/v1/chat/completions";
    return {};
  }

  // Connects, learns the model's name where none was given, and what the server says of itself.
  Status meet_server() {
    client_ = std::make_unique<loadgen::Client>(io_, client_options_, clock_);
    RETURN_IF_ERROR(client_->resolve(endpoint_.url));
    for (loadgen::LoadStream& stream : streams_) {
      if (stream.models.empty()) {
        if (first_model_.empty()) {
          RETURN_IF_ERROR(ask_first_model());
        }
        stream.models = {first_model_};
      }
    }
    info_.model = streams_.front().models.front();
    const Result<loadgen::WholeAnswer> config =
        loadgen::ask(io_, *client_, loadgen::get_request(endpoint_, "/v1/tandem/config"));
    if (config.ok() && config->status == 200) {
      info_.server_config = Json::parse(config->body, nullptr, false);
      if (info_.server_config.is_discarded()) {
        info_.server_config = nullptr;
      }
    }
    return {};
  }

  Status ask_first_model() {
    ASSIGN_OR_RETURN(const loadgen::WholeAnswer answer,
                     loadgen::ask(io_, *client_, loadgen::get_request(endpoint_, "/v1/models")));
    const nlohmann::json json = nlohmann::json::parse(answer.body, nullptr, false);
    if (answer.status == 200 && json.is_object() && json.contains("data") &&
        json["data"].is_array() && !json["data"].empty() && json["data"][0].is_object() &&
        json["data"][0].contains("id") && json["data"][0]["id"].is_string()) {
      first_model_ = json["data"][0]["id"].get<std::string>();
      return {};
    }
    return Error{
        ErrorCode::kUnavailable,
        fmt::format("{}/v1/models names no model (HTTP {}: {}); give --model", endpoint_.url.text(),
                    answer.status, loadgen::error_message(answer.body)),
        "model"};
  }

  void say(const loadgen::Load& load) const {
    int64_t input = 0;
    int64_t output = 0;
    int64_t tasks = 0;
    for (const loadgen::LoadRequest& request : load.requests) {
      input += request.plan.input_tokens;
      output += request.task == nullptr ? request.plan.output_tokens : 0;
      tasks += request.task == nullptr ? 0 : 1;
    }
    log::info("{} requests over {:.1f} s to {}{}", load.requests.size(),
              to_seconds(load.requests.back().plan.at), info_.url, endpoint_.route);
    if (tasks > 0) {
      log::info("{} of them ask a task whose answer is judged", tasks);
    }
    if (const auto others = static_cast<double>(std::ssize(load.requests) - tasks); others > 0) {
      log::info("made-up requests: {:.0f} tokens in and {:.0f} out on average",
                static_cast<double>(input) / others, static_cast<double>(output) / others);
    }
    if (load.cut_inputs + load.cut_outputs > 0) {
      log::info("{} prompts and {} answers are cut to the given limits", load.cut_inputs,
                load.cut_outputs);
    }
  }

  Result<loadgen::PromptUnits> find_units(const loadgen::Load& load) {
    if (std::ranges::all_of(load.requests, [](const loadgen::LoadRequest& request) {
          return request.task != nullptr;
        })) {
      return loadgen::PromptUnits{};
    }
    const std::string& model = load.models.front();
    const loadgen::CountTokens count = [&](const std::string& text) -> Result<int64_t> {
      ASSIGN_OR_RETURN(
          const loadgen::WholeAnswer answer,
          loadgen::ask(io_, *client_, loadgen::counting_request(endpoint_, model, text)));
      if (answer.status != 200) {
        return Error{ErrorCode::kUnavailable,
                     fmt::format("the server refused the first request (HTTP {}): {}",
                                 answer.status, loadgen::error_message(answer.body)),
                     {}};
      }
      const std::optional<loadgen::TokenUsage> usage = loadgen::read_usage(answer.body);
      if (!usage) {
        return Error{ErrorCode::kUnsupported,
                     "the server's answer has no usage.prompt_tokens, so prompts of a known length "
                     "cannot be made",
                     {}};
      }
      return usage->prompt_tokens;
    };
    ASSIGN_OR_RETURN(loadgen::PromptUnits units, loadgen::find_units(count));
    log::info("prompts: {} units of one token, {} tokens of overhead", units.units.size(),
              units.overhead_tokens);
    if (!units.exact) {
      log::warn(
          "no units of exactly one token were found ({:.2f} on average): prompt lengths are "
          "approximate",
          units.tokens_per_unit);
    }
    return units;
  }

  Status warm_up(const loadgen::Load& load, const loadgen::PromptUnits& units) {
    for (int64_t i = 0; i < flags_.num_warmups; ++i) {
      loadgen::LoadRequest request = load.requests[static_cast<size_t>(i) % load.requests.size()];
      for (workload::PromptPart& part : request.plan.prompt) {
        part.seed = workload::mixed(part.seed, static_cast<uint64_t>(i) + 1);  // other text
      }
      ASSIGN_OR_RETURN(const loadgen::WholeAnswer answer,
                       loadgen::ask(io_, *client_,
                                    loadgen::generation_request(endpoint_, load, request, units)));
      if (answer.status != 200) {
        return Error{ErrorCode::kUnavailable,
                     fmt::format("a warm-up request was refused (HTTP {}): {}", answer.status,
                                 loadgen::error_message(answer.body)),
                     {}};
      }
    }
    return {};
  }

  Status write(const loadgen::Load& load, const loadgen::RunResult& result,
               const loadgen::Summary& summary) {
    if (flags_.save_result || flags_.save_detailed || !flags_.result_filename.empty()) {
      std::string name = flags_.result_filename;
      if (name.empty()) {
        std::string model = info_.model.substr(info_.model.rfind('/') + 1);
        std::ranges::replace_if(
            model, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '-');
        name = fmt::format("{}-{}qps-{}-{}.json", info_.backend, info_.request_rate, model,
                           utc_date_for_names());
      }
      const std::string path = flags_.result_dir.empty() ? name : flags_.result_dir + "/" + name;
      const Json json = loadgen::result_json(
          info_, load, result, summary,
          flags_.save_detailed ? loadgen::Detail::kRequests : loadgen::Detail::kSummary);
      RETURN_IF_ERROR(loadgen::write_text(
          path,
          without_secrets(json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n", load)));
      log::info("result: {}", path);
    }
    if (!flags_.report.empty()) {
      RETURN_IF_ERROR(loadgen::write_text(
          flags_.report,
          without_secrets(loadgen::report_html(info_, load, result, summary), load)));
      log::info("report: {}", flags_.report);
    }
    return {};
  }

  // What a server said may repeat the credentials that it was sent.
  [[nodiscard]] std::string without_secrets(std::string text, const loadgen::Load& load) const {
    std::string headers = fmt::format("Authorization: Bearer {}\r\n", endpoint_.api_key);
    for (const loadgen::RequestGroup& group : load.groups) {
      headers += group.headers;
    }
    return loadgen::without_secrets(std::move(text), headers);
  }

  ServeBenchFlags flags_;
  SteadyClock clock_;
  boost::asio::io_context io_{1};
  loadgen::ClientOptions client_options_;
  std::unique_ptr<loadgen::Client> client_;
  loadgen::EndpointOptions endpoint_;
  std::vector<loadgen::LoadStream> streams_;
  std::string first_model_;
  loadgen::RunInfo info_;
};

void add_server_flags(cli::Command app, ServeBenchFlags& flags) {
  app.add_option("--backend", flags.backend,
                 "openai (completions) or openai-chat; vllm is another name of openai")
      .capture_default_str()
      .one_of({"openai", "vllm", "openai-chat"});
  app.add_option("--base-url", flags.base_url,
                 "The server, e.g. http://127.0.0.1:8000 or https://host");
  app.add_option("--cacert", flags.cacert,
                 "https: PEM file of who signs the server's certificate (default: the system's)");
  app.add_flag("--insecure", flags.insecure, "https: take any certificate");
  app.add_option("--host", flags.host, "The server's host, without --base-url")
      .capture_default_str();
  app.add_option("--port", flags.port, "The server's port, without --base-url")
      .capture_default_str();
  app.add_option("--endpoint", flags.endpoint, "Path (default: by the backend)");
  app.add_option("--api-key", flags.api_key, "Sent as Bearer (default: OPENAI_API_KEY)");
  app.add_option("--request-timeout", flags.request_timeout,
                 "A request fails after so long without a byte")
      .capture_default_str();
}

void add_result_flags(cli::Command app, ServeBenchFlags& flags) {
  app.add_option("--percentile-metrics", flags.percentile_metrics,
                 "What the table shows, of ttft, tpot, itl, e2el")
      .capture_default_str();
  app.add_option("--metric-percentiles", flags.metric_percentiles, "Percentiles of the table")
      .capture_default_str();
  app.add_flag("--save-result", flags.save_result, "Write the result as JSON");
  app.add_flag("--save-detailed", flags.save_detailed, "The same with every request in it");
  app.add_option("--result-dir", flags.result_dir, "Folder of the result (default: here)");
  app.add_option("--result-filename", flags.result_filename,
                 "Name of the result (default: made of backend, rate, model and date)");
  app.add_option("--report", flags.report, "Write an HTML page with plots to this file");
  app.add_option("--label", flags.label, "Name of the run in result and report");
  app.add_option("--metadata", flags.metadata, "KEY=VALUE for the result; repeatable");
}

}  // namespace

void add_serve_bench_flags(cli::Command app, ServeBenchFlags& flags) {
  flags.command = app;
  add_server_flags(app, flags);
  add_stream_flags(app, flags.stream);
  app.add_option(
      "--stream", flags.streams,
      "A stream of its own: \"name=chat;request-rate=4;service-tier=priority\"; keys are "
      "the flags above, which give its defaults; repeatable");
  app.add_option("--seed", flags.seed, "The same seed gives the same schedule and texts")
      .capture_default_str();
  app.add_option("--max-concurrency", flags.max_concurrency,
                 "Requests under way at most; 0: no bound (open loop)")
      .capture_default_str()
      .in_range(int64_t{0}, int64_t{1'000'000});
  app.add_flag("--ignore-eos,!--no-ignore-eos", flags.ignore_eos,
               "Ask for exactly the planned answer lengths (on unless --no-ignore-eos)");
  app.add_option("--temperature", flags.temperature, "Sampling temperature").capture_default_str();
  app.add_option("--extra-body", flags.extra_body, "JSON object laid over every request");
  app.add_option("--num-warmups", flags.num_warmups, "Requests sent before, one by one")
      .capture_default_str()
      .in_range(int64_t{0}, int64_t{100'000});
  add_result_flags(app, flags);
}

int bench_serve(const ServeBenchFlags& flags) {
  ServeBench bench(flags);
  const Result<int> code = bench.run();
  if (!code.ok()) {
    log::error("{}", code.error().message);
    return cli::exit_code_of(code.error().code);
  }
  return *code;
}

}  // namespace tandem::bench
