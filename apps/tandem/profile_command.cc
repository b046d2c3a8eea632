// `tandem profile`: measures how long steps of a model take on this machine, and writes that down.
#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/units.h"
#include "cli/exit_code.h"
#include "cli/option_flags.h"
#include "commands.h"
#include "node/loaded_model.h"
#include "node/policy_choice.h"
#include "node/time_profile.h"
#include "profile_bar.h"
#include "progress.h"
#include "serve_flags.h"
#include "shared_options.h"
#include "sim/op_measures.h"

namespace tandem {
namespace {

struct ProfileFlags {
  ServeFlags serve;
  std::string out;
  std::string samples_out;
  std::string op_times;
  std::string time = "90s";
  latency::ProfilerOptions profiler;
};

void print_accuracy(const char* name, const latency::Accuracy& accuracy) {
  fmt::print("  {:32} {:>7.1f} % {:>7.1f} % {:>7.1f} %\n", name, accuracy.mean * 100,
             accuracy.p90 * 100, accuracy.p99 * 100);
}

void print_report(const latency::Measured& measured, Nanos took) {
  fmt::print("{} batches in {}, steps of up to {} rows\n", measured.batches, format_duration(took),
             measured.most_rows);
  fmt::print("met {} held-out random batches to{:>22} {:>9} {:>9}\n",
             measured.modular_accuracy.batches, "mean", "P90", "P99");
  print_accuracy("modular (OmniServe)", measured.modular_accuracy);
  print_accuracy("regression (HyGen)", measured.regression_accuracy);
  print_accuracy("table (SLINFER)", measured.table_accuracy);
  print_accuracy("the same batch, run again", measured.repeatability);
}

// `token_bytes`: K and V of a token in one layer.
void print_host(const latency::MeasuredHost& measured, int64_t token_bytes) {
  const latency::HostTimes& times = measured.times;
  const auto gigabytes = [](double bytes, double nanos) { return nanos > 0 ? bytes / nanos : 0; };
  fmt::print(
      "host attention: {:.2f} GB/s, {:.2f} us a row, {:.1f} us in any case ({:.1f} % accurate at "
      "its points in the mean)\n",
      gigabytes(static_cast<double>(token_bytes), times.attention.per_context_nanos),
      times.attention.per_row_nanos * 1e-3, times.attention.fixed_nanos * 1e-3,
      measured.attention_accuracy.mean * 100);
  for (const auto& [way, line] :
       {std::pair("to the host", times.to_host), std::pair("from the host", times.from_host)}) {
    fmt::print("link {}: {:.2f} GB/s, {:.1f} us a copy\n", way, gigabytes(1, line.beta_nanos),
               line.alpha_nanos * 1e-3);
  }
  fmt::print(
      "engine thread: {:.1f} us a group of stages, {:.1f} us a stage of a lane, {:.2f} us a visit; "
      "a visit adds {:.2f} us to a step beside its row\n",
      times.launch.per_group_nanos * 1e-3, times.launch.per_lane_stage_nanos * 1e-3,
      times.launch.per_visit_nanos * 1e-3, measured.per_visit * 1e-3);
}

// One line for each held-out batch: what the figures above are made of.
Status write_samples(const std::string& path, const latency::Measured& measured) {
  ASSIGN_OR_RETURN(const latency::ModularModel model,
                   latency::ModularModel::create(measured.modular));
  std::ofstream file(path);
  file << "prefill_rows,prefill_slices,prefill_pairs,decode_rows,decode_context,logit_rows,"
          "measured_ns,again_ns,predicted_ns\n";
  for (const latency::HeldOut& held : measured.held_out) {
    const latency::StepShape& shape = held.sample.shape;
    file << fmt::format("{},{},{},{},{},{},{:.0f},{:.0f},{}\n", shape.prefill_rows,
                        shape.prefill_slices, shape.prefill_pairs, shape.decode_rows,
                        shape.decode_context, shape.logit_rows, held.sample.nanos, held.again,
                        model.step_time(shape).count());
  }
  file.flush();
  return file.good()
             ? Status{}
             : Status{Error{ErrorCode::kIo, fmt::format("cannot write '{}'", path), "samples-out"}};
}

Status write_op_times(const sim::OpMeasures& measures, const PlannedModel& model,
                      const std::string& cpu, const std::string& path) {
  const device::AcceleratorCaps& caps = model.device.caps();
  const sim::MeasuredOps measured{.machine = fmt::format("{} ({})", caps.identity, cpu),
                                  .memory_bytes = caps.memory_bytes,
                                  .shape = sim::shape_of(model.folder.config),
                                  .table = std::make_shared<device::OpTable>(measures.table())};
  RETURN_IF_ERROR(sim::write_measured_ops(measured, path));
  fmt::print("wrote {}\n", path);
  return {};
}

Status run_profile(ProfileFlags& flags) {
  RETURN_IF_ERROR(log::start(flags.serve.log_level));
  RETURN_IF_ERROR(resolve(flags.serve));
  const Result<Nanos> time = parse_duration(flags.time);
  if (!time.ok() || *time <= Nanos{0}) {
    return invalid_argument(
        fmt::format("--time '{}' is not a time above 0, such as 90s", flags.time), "time");
  }
  flags.profiler.time = *time;
  NodeOptions& node = flags.serve.node;
  // Measured, not read; kept where it is asked for, or where serve looks for it.
  const ProfileOptions place{.file = flags.out, .cache_folder = profile_folder()};
  node.profile = {};
  node.policy.clear();  // nothing is planned here
  choose_plain_policy(node);
  sim::OpMeasures measures;
  if (!flags.op_times.empty()) {
    if (node.accelerator.has_value()) {
      return Error{ErrorCode::kUnsupported,
                   "--op-times measures the ops of the cpu back end alone: leave "
                   "--emulate-accelerator out",
                   "op-times"};
    }
    node.device.op_times = &measures;
  }
  const SteadyClock clock;
  Bell bell;
  ASSIGN_OR_RETURN(const SoleModel opened, open_model(node, clock));
  const PlannedModel& model = opened.model;
  ProgressBar loading("loading weights", clock);
  ASSIGN_OR_RETURN(
      const std::unique_ptr<LoadedModel> loaded,
      load_model(
          model, [&](const model::LoadProgress& p) { loading.show(p.bytes_done, p.bytes_total); },
          [&bell] { bell.ring(); }));
  loading.finish();
  measures.clear();
  const latency::ProfileIdentity identity = identity_of(node, model);
  fmt::print("{}, {} on {} ({})\n", identity.model, identity.dtype, identity.device, identity.cpu);
  ProfileBar bar(clock);
  const Nanos began = clock.now();
  Result<MeasuredProfile> measured =
      measure_profile(node, model, *loaded, bell, clock, flags.profiler,
                      [&bar](double share, std::string_view what) { bar.show(share, what); });
  bar.clear();
  if (!measured.ok()) {
    return measured.error();
  }
  print_report(measured->steps, clock.now() - began);
  if (measured->host.has_value()) {
    print_host(*measured->host, model::kv_bytes_per_token(model.folder.config, model.kv_dtype) /
                                    model.folder.config.layers);
  }
  if (!flags.samples_out.empty()) {
    RETURN_IF_ERROR(write_samples(flags.samples_out, measured->steps));
  }
  if (!flags.op_times.empty()) {
    RETURN_IF_ERROR(write_op_times(measures, model, identity.cpu, flags.op_times));
  }
  const latency::Profile profile = profile_of(*std::move(measured), identity);
  const std::filesystem::path path = profile_path(place, identity);
  if (path.empty()) {
    return invalid_argument("there is no cache folder to keep the profile in: name a file by -o",
                            "o");
  }
  RETURN_IF_ERROR(write_profile(profile, path));
  fmt::print("wrote {}\n", path.string());
  return {};
}

}  // namespace

RunCommand describe_profile(cli::Command app) {
  auto flags = std::make_shared<ProfileFlags>();
  flags->serve.log_level = "warning";
  flags->profiler.random_batches = 2000;  // as many of them as the time allows
  cli::add_option(app, model_option(flags->serve.node)).required();
  app.add_option("-o,--out", flags->out,
                 "File for the profile (default: where serve looks for it)");
  app.add_option("--time", flags->time, "For measuring, about").capture_default_str();
  app.add_option("--held-out", flags->profiler.held_out_batches,
                 "Random batches that the models are judged by")
      .capture_default_str()
      .in_range(3, 1'000'000);
  app.add_option("--random", flags->profiler.random_batches,
                 "Random batches to learn from, at most")
      .capture_default_str()
      .in_range(3, 1'000'000);
  app.add_option("--samples-out", flags->samples_out,
                 "Also write the held-out batches, measured and predicted, as CSV");
  app.add_option("--op-times", flags->op_times,
                 "Also write what each op takes here, for tandem simulate --op-times");
  cli::add_option(app, log_level_option(flags->serve.log_level));
  app.group_new_options("Profile");
  add_node_flags(app, flags->serve);
  app.add_option("--config", "YAML file with any of these flags as keys; flags given here win");
  return [flags] {
    const Status status = run_profile(*flags);
    if (!status.ok()) {
      log::error("{}", status.error().message);
      return cli::exit_code_of(status.error().code);
    }
    return 0;
  };
}

}  // namespace tandem
