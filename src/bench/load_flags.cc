#include "bench/load_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "bench/load_flag_effects.h"
#include "cli/arguments.h"
#include "loadgen/request_body.h"
#include "workload/number.h"

namespace tandem::bench {

namespace {

void add_class_flags(cli::Command app, StreamFlags& flags) {
  app.add_option("--name", flags.name, "Name of the class in the report (default: by its tier)");
  app.add_option("--service-tier", flags.service_tier,
                 "Class of the requests: priority (latency sensitive), flex (best effort), default "
                 "or auto (default: the field is not sent)")
      .one_of({"priority", "flex", "default", "auto"});
  app.add_option("--mix", flags.mix,
                 "Deals the requests out to tiers by chance, e.g. priority:0.7,flex:0.3");
  app.add_option("--priority", flags.priority, "Body field priority (lower goes first)");
  app.add_option("--slo-ttft-ms", flags.slo_ttft_ms,
                 "Sends the header x-llm-d-slo-ttft-ms; the target counts as --goodput, too");
  app.add_option("--slo-tpot-ms", flags.slo_tpot_ms, "The same with x-llm-d-slo-tpot-ms");
  app.add_option("--slo-ttft", flags.slo_ttft,
                 "Sends the body field slo.ttft, e.g. 500ms+2ms/tok,max=8s; counts as --goodput");
  app.add_option("--slo-tpot", flags.slo_tpot, "The same with slo.tpot, e.g. 50ms");
  app.add_flag("--explain,!--no-explain", flags.explain,
               "Asks a Tandem server how it served each request: attainment by its own clock");
  app.add_option("--header", flags.headers, "\"Name: value\" sent with every request; repeatable")
      .one_value_each();
  app.add_option(
         "--goodput", flags.goodput,
         "Targets ttft:MS tpot:MS e2el:MS that a good request keeps; ttft also as a rule of "
         "the prompt, e.g. ttft:500ms+2ms/tok,max=8s")
      .expected(1, 3);
  app.add_option("--model", flags.models,
                 "A model to ask; repeatable: a trace's model_id picks one (default: the server's "
                 "first)")
      .one_value_each();
  if (flags.of_simulation) {
    app.add_option("--engine", flags.engine,
                   "Name of the engine that takes the requests (default: chosen for each)");
  }
}

void add_arrival_flags(cli::Command app, StreamFlags& flags) {
  app.add_option("--arrivals", flags.arrivals,
                 "poisson (gamma with --burstiness), fixed, bursts, trace, or auto: what the other "
                 "flags say")
      .one_of({"auto", "poisson", "fixed", "bursts", "trace"})
      .capture_default_str();
  app.add_option_function<double>(
      "--request-rate",
      [&flags](double rate) {
        flags.request_rate = rate;
        flags.rate_given = true;
      },
      "Requests a second; inf sends all at once (default: inf, or a trace's own times)");
  app.add_option("--burstiness", flags.burstiness,
                 "Shape of the gamma distribution of gaps: 1 is Poisson, lower is burstier")
      .capture_default_str();
  app.add_option("--burst-every", flags.burst_every, "bursts: how often the rate is redrawn")
      .capture_default_str();
  app.add_option("--burst-rates", flags.burst_rates,
                 "bursts: LOW:HIGH, the rate is drawn uniformly between them");
  app.add_option("--num-prompts", flags.num_prompts,
                 "Requests at most (default: 1000 without --duration; all rows of a trace)");
  app.add_option("--duration", flags.duration, "No request arrives later than this, e.g. 60s");
}

void add_task_flags(cli::Command app, StreamFlags& flags) {
  app.add_option("--tasks", flags.tasks,
                 "JSON lines of questions with known answers (tools/train/task_file.py writes "
                 "them): asked in chats, and judged; each once, unless --num-prompts or --duration "
                 "say otherwise");
}

void add_length_flags(cli::Command app, StreamFlags& flags) {
  app.add_option("--random-input-len", flags.random_input_len, "Prompt tokens")
      .capture_default_str()
      .in_range(1, workload::kMostTokens);
  app.add_option("--random-output-len", flags.random_output_len, "Answer tokens")
      .capture_default_str()
      .in_range(1, workload::kMostTokens);
  app.add_option("--random-range-ratio", flags.random_range_ratio,
                 "R: lengths are uniform from len*(1-R) to len*(1+R)")
      .capture_default_str()
      .in_range(0.0, 0.999);
  app.add_option("--input-len-dist", flags.input_len_dist,
                 "Prompt tokens as uniform:LOW:HIGH, normal:MEAN:STD or lognormal:MEAN:STD");
  app.add_option("--output-len-dist", flags.output_len_dist, "The same for answers");
  app.add_option("--random-prefix-len", flags.random_prefix_len,
                 "Tokens of a shared beginning, before the prompt's own")
      .capture_default_str()
      .in_range(0, workload::kMostTokens);
  app.add_option("--random-num-prefixes", flags.random_num_prefixes,
                 "Different beginnings; each request draws one")
      .capture_default_str()
      .in_range(1, 1'000'000);
  app.add_option("--max-input-len", flags.max_input_len, "Longer prompts are cut")
      .in_range(1, workload::kMostTokens);
  app.add_option("--max-output-len", flags.max_output_len, "Longer answers are cut")
      .in_range(1, workload::kMostTokens);
}

void add_trace_flags(cli::Command app, StreamFlags& flags) {
  app.add_option("--dataset-path", flags.dataset_path,
                 "Trace file: lengths, and times where it has them");
  app.add_option("--trace-format", flags.trace_format, "auto, tandem, azure, burstgpt or mooncake")
      .capture_default_str();
  app.add_option("--trace-block-size", flags.trace_block_size, "Tokens of one hash id")
      .capture_default_str()
      .in_range(1, 1'000'000);
  app.add_option("--trace-start", flags.trace_start, "Begin at this time of the trace, e.g. 10min")
      .capture_default_str();
  app.add_option("--trace-duration", flags.trace_duration, "Take so much of the trace");
  app.add_option("--trace-rate", flags.trace_rate,
                 "Thin the trace to this mean rate: rows are left out by chance");
  app.add_option("--trace-speed", flags.trace_speed, "2: the same rows in half the time")
      .capture_default_str();
  app.add_option("--length-scale", flags.length_scale, "Multiplies the trace's lengths")
      .capture_default_str();
}

Result<workload::Lengths> lengths_of(const std::string& text, int32_t fixed, double ratio) {
  if (!text.empty()) {
    return workload::Lengths::parse(text);
  }
  const auto low = static_cast<int32_t>(std::floor(fixed * (1 - ratio)));
  const auto high =
      static_cast<int32_t>(std::min(std::ceil(fixed * (1 + ratio)), double{workload::kMostTokens}));
  return workload::Lengths::uniform(std::max(low, 1), high);
}

Status set_arrivals(const StreamFlags& flags, workload::StreamOptions& options) {
  std::string kind = flags.arrivals;
  if (kind == "auto") {
    kind = !flags.burst_rates.empty()                                                  ? "bursts"
           : options.trace != nullptr && options.trace->has_times && !flags.rate_given ? "trace"
                                                                                       : "poisson";
  }
  options.arrivals.rate_per_s = flags.request_rate;
  options.arrivals.burstiness = flags.burstiness;
  options.arrivals_from_trace = kind == "trace";
  if (kind == "trace" && options.trace == nullptr) {
    return invalid_argument("--arrivals trace needs --dataset-path", "arrivals");
  }
  if (kind == "fixed") {
    options.arrivals.kind = workload::ArrivalKind::kFixed;
    if (std::isinf(flags.request_rate)) {
      return invalid_argument("--arrivals fixed needs a --request-rate", "request-rate");
    }
  }
  if (kind == "bursts") {
    options.arrivals.kind = workload::ArrivalKind::kBursts;
    ASSIGN_OR_RETURN(options.arrivals.burst_every, parse_duration(flags.burst_every));
    const std::vector<std::string_view> rates = workload::split(flags.burst_rates, ':');
    const auto low = workload::read_number(rates.front());
    const auto high = workload::read_number(rates.back());
    if (rates.size() != 2 || !low || !high) {
      return invalid_argument("--burst-rates must be LOW:HIGH, e.g. 1:8", "burst-rates");
    }
    options.arrivals.burst_low_per_s = *low;
    options.arrivals.burst_high_per_s = *high;
  }
  return options.arrivals_from_trace ? Status{} : workload::check(options.arrivals);
}

Status set_trace(const StreamFlags& flags, workload::StreamOptions& options) {
  workload::TraceOptions reading;
  reading.block_tokens = flags.trace_block_size;
  ASSIGN_OR_RETURN(reading.format, workload::parse_trace_format(flags.trace_format));
  ASSIGN_OR_RETURN(workload::Trace trace, workload::read_trace(flags.dataset_path, reading));
  options.source = workload::Source::kTrace;
  options.block_tokens = flags.trace_block_size;
  options.trace_speed = flags.trace_speed;
  options.length_scale = flags.length_scale;
  ASSIGN_OR_RETURN(options.trace_begin, parse_duration(flags.trace_start));
  if (!flags.trace_duration.empty()) {
    ASSIGN_OR_RETURN(options.trace_length, parse_duration(flags.trace_duration));
  }
  if (flags.trace_rate) {
    const double rate =
        static_cast<double>(trace.rows.size()) / std::max(to_seconds(trace.rows.back().at), 1e-9);
    if (!(*flags.trace_rate > 0 && *flags.trace_rate <= rate)) {
      return invalid_argument(
          fmt::format("--trace-rate must be over 0 and at most the trace's {:.3f} requests a "
                      "second; --trace-speed makes it faster",
                      rate),
          "trace-rate");
    }
    options.trace_keep = *flags.trace_rate / rate;
  }
  options.trace = std::make_shared<const workload::Trace>(std::move(trace));
  return {};
}

std::string class_of_tier(const std::string& tier) {
  return tier == "priority" ? "latency sensitive" : tier == "flex" ? "best effort" : "default";
}

Error about_flag(const char* flag, const Error& error) {
  return invalid_argument(fmt::format("--{}: {}", flag, error.message), flag);
}

// Targets that are sent are those to be kept, unless --goodput says others.
Status set_slo(const StreamFlags& flags, loadgen::RequestGroup& group) {
  Slo& headers = group.header_slo;
  if (flags.slo_ttft_ms) {
    const Result<Nanos> target = target_of_millis(*flags.slo_ttft_ms);
    if (!target.ok()) {
      return about_flag("slo-ttft-ms", target.error());
    }
    headers.ttft = TtftRule{.base = *target};
    group.headers += fmt::format("x-llm-d-slo-ttft-ms: {:.6f}\r\n", *flags.slo_ttft_ms);
  }
  if (flags.slo_tpot_ms) {
    const Result<Nanos> target = target_of_millis(*flags.slo_tpot_ms);
    if (!target.ok()) {
      return about_flag("slo-tpot-ms", target.error());
    }
    headers.tpot = *target;
    group.headers += fmt::format("x-llm-d-slo-tpot-ms: {:.6f}\r\n", *flags.slo_tpot_ms);
  }
  if (!flags.slo_ttft.empty()) {
    const Result<TtftRule> rule = parse_ttft_rule(flags.slo_ttft);
    if (!rule.ok()) {
      return about_flag("slo-ttft", rule.error());
    }
    group.slo.ttft = *rule;
  }
  if (!flags.slo_tpot.empty()) {
    const Result<Nanos> target = parse_target(flags.slo_tpot);
    if (!target.ok()) {
      return about_flag("slo-tpot", target.error());
    }
    group.slo.tpot = *target;
  }
  if (!group.goodput.ttft) {
    group.goodput.ttft = group.sent_slo().ttft;
  }
  if (!group.goodput.tpot) {
    group.goodput.tpot = group.sent_slo().tpot;
  }
  return {};
}

Result<loadgen::RequestGroup> make_group(const StreamFlags& flags, const std::string& tier) {
  loadgen::RequestGroup group;
  group.service_tier = tier;
  group.name = flags.name.empty() ? class_of_tier(tier) : flags.name;
  group.priority = flags.priority;
  ASSIGN_OR_RETURN(group.goodput, loadgen::parse_goodput(flags.goodput));
  for (const std::string& header : flags.headers) {
    ASSIGN_OR_RETURN(const std::string line, loadgen::header_line(header));
    group.headers += line;
  }
  RETURN_IF_ERROR(set_slo(flags, group));
  group.explain = flags.explain;
  group.engine = flags.engine;
  return group;
}

// One group for each part of "priority:0.7,flex:0.3".
Status set_mix(const StreamFlags& flags, loadgen::LoadStream& stream) {
  for (const std::string_view part : workload::split(flags.mix, ',')) {
    const std::vector<std::string_view> pieces = workload::split(part, ':');
    const auto share = workload::read_number(pieces.back());
    const std::string tier(pieces.front());
    if (pieces.size() != 2 || !share || *share <= 0 || *share > 1e6 ||
        (tier != "priority" && tier != "flex" && tier != "default" && tier != "auto")) {
      return invalid_argument(
          fmt::format("--mix: '{}' is not a share; write priority:0.7,flex:0.3", part), "mix");
    }
    ASSIGN_OR_RETURN(loadgen::RequestGroup group, make_group(flags, tier));
    stream.groups.push_back(std::move(group));
    stream.options.shares.push_back(*share);
  }
  return {};
}

Status set_tasks(const StreamFlags& flags, loadgen::LoadStream& stream) {
  if (!flags.dataset_path.empty()) {
    return invalid_argument(
        "--tasks and --dataset-path both say what is asked; give each a --stream of its own",
        "tasks");
  }
  ASSIGN_OR_RETURN(std::vector<loadgen::AnswerTask> tasks, loadgen::read_tasks(flags.tasks));
  if (!flags.num_prompts && flags.duration.empty()) {
    stream.options.requests = std::ssize(tasks);
  }
  stream.tasks = std::make_shared<const std::vector<loadgen::AnswerTask>>(std::move(tasks));
  return {};
}

Result<loadgen::LoadStream> make_stream(const StreamFlags& flags) {
  loadgen::LoadStream stream;
  workload::StreamOptions& options = stream.options;
  if (!flags.dataset_path.empty()) {
    RETURN_IF_ERROR(set_trace(flags, options));
  }
  RETURN_IF_ERROR(set_arrivals(flags, options));
  ASSIGN_OR_RETURN(options.input, lengths_of(flags.input_len_dist, flags.random_input_len,
                                             flags.random_range_ratio));
  ASSIGN_OR_RETURN(options.output, lengths_of(flags.output_len_dist, flags.random_output_len,
                                              flags.random_range_ratio));
  options.prefix_tokens = flags.random_prefix_len;
  options.prefixes = flags.random_num_prefixes;
  options.most_input_tokens = flags.max_input_len;
  options.most_output_tokens = flags.max_output_len;
  options.requests = flags.num_prompts;
  if (!flags.tasks.empty()) {
    RETURN_IF_ERROR(set_tasks(flags, stream));
  }
  if (!flags.duration.empty()) {
    ASSIGN_OR_RETURN(options.duration, parse_duration(flags.duration));
  } else if (!options.requests && options.trace == nullptr) {
    constexpr int64_t kDefaultPrompts = 1000;
    options.requests = kDefaultPrompts;
  }
  stream.models = flags.models;
  if (!flags.mix.empty()) {
    RETURN_IF_ERROR(set_mix(flags, stream));
  } else {
    ASSIGN_OR_RETURN(loadgen::RequestGroup group, make_group(flags, flags.service_tier));
    stream.groups.push_back(std::move(group));
  }
  return stream;
}

// "rate=2;name=chat" over the defaults, read as if each key were a flag.
Result<StreamFlags> parse_spec(const std::string& spec, const StreamFlags& defaults) {
  StreamFlags flags = defaults;
  cli::CommandLine command_line;
  command_line.remove_help_flag();
  add_stream_flags(command_line.root(), flags);
  std::vector<std::string> arguments;
  for (const std::string_view item : workload::split(spec, ';')) {
    if (item.empty()) {
      continue;
    }
    const size_t equals = item.find('=');
    if (equals == item.npos) {
      return invalid_argument(
          fmt::format("--stream: '{}' is not key=value (keys are flags without dashes, set apart "
                      "by ;)",
                      item),
          "stream");
    }
    const std::string_view key = item.substr(0, equals);
    const std::string flag = fmt::format("--{}", key);
    if (!command_line.root().has_option(flag)) {
      return invalid_argument(fmt::format("--stream: unknown key '{}'{}", key,
                                          cli::nearest_key(key, command_line.root())),
                              "stream");
    }
    const std::string_view text = item.substr(equals + 1);
    // Flags with several values take them set apart by spaces.
    const bool has_list = flag == "--goodput" || flag == "--model";
    for (const std::string_view value :
         has_list ? workload::split(text, ' ') : std::vector<std::string_view>{text}) {
      arguments.push_back(flag);
      arguments.emplace_back(value);
    }
  }
  const Result<std::optional<int>> done = command_line.parse(std::move(arguments));
  if (!done.ok()) {
    return invalid_argument(fmt::format("--stream: {}", done.error().message), "stream");
  }
  return flags;
}

}  // namespace

void add_stream_flags(cli::Command app, StreamFlags& flags) {
  add_class_flags(app, flags);
  add_arrival_flags(app, flags);
  add_length_flags(app, flags);
  add_trace_flags(app, flags);
  add_task_flags(app, flags);
}

Result<std::vector<loadgen::LoadStream>> make_streams(const StreamFlags& defaults,
                                                      const std::vector<std::string>& specs) {
  std::vector<StreamFlags> flags;
  for (const std::string& spec : specs) {
    ASSIGN_OR_RETURN(StreamFlags own, parse_spec(spec, defaults));
    flags.push_back(std::move(own));
  }
  if (specs.empty()) {
    flags.push_back(defaults);
  }
  std::vector<loadgen::LoadStream> streams;
  for (const StreamFlags& own : flags) {
    ASSIGN_OR_RETURN(loadgen::LoadStream stream, make_stream(own));
    streams.push_back(std::move(stream));
  }
  RETURN_IF_ERROR(check_load_flags(flags, streams));
  return streams;
}

}  // namespace tandem::bench
