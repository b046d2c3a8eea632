#include "bench/model_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "base/bell.h"
#include "base/log.h"
#include "bench/measuring.h"
#include "cli/exit_code.h"
#include "device/cpu/op_times.h"
#include "engine/engine.h"
#include "node/config_json.h"
#include "node/policy_choice.h"
#include "node/scheduled_model.h"

namespace tandem::bench {
namespace {

// Times of ops, by name.
using OpTable = std::vector<device::OpTime>;

void add_times(const OpTable& from, OpTable& to) {
  for (const device::OpTime& time : from) {
    const auto found = std::ranges::find(to, time.name, &device::OpTime::name);
    device::OpTime& own =
        found == to.end() ? to.emplace_back(device::OpTime{.name = time.name}) : *found;
    own.count += time.count;
    own.total += time.total;
  }
}

// Sums the times of steps, prompts and decodes apart. Of steps that only decode, steps with the
// most sequences count: while the first prompts decode others wait, and at the end some have ended.
class StepTimes final : public observe::EngineObserver {
 public:
  explicit StepTimes(device::OpTimes& op_times) : op_times_(op_times) {}

  void on_step(const observe::StepRecord& record) override {
    const OpTable ops = op_times_.take();
    if (record.prefill_tokens > 0) {
      add_times(ops, prefill_ops);
      prefill_seconds += to_seconds(record.duration);
      prefill_tokens += record.prefill_tokens;
    } else {
      add_decode(record, ops);
    }
    engine_work.push_back(to_seconds(record.engine_work));
  }
  void on_gauges(const observe::EngineGauges&) override {}
  void on_request(const observe::RequestRecord&) override {}

  double prefill_seconds = 0;
  double decode_seconds = 0;
  int64_t prefill_tokens = 0;
  int64_t decode_tokens = 0;
  int64_t decode_steps = 0;
  std::vector<double> engine_work;
  OpTable prefill_ops;
  OpTable decode_ops;

 private:
  void add_decode(const observe::StepRecord& record, const OpTable& ops) {
    if (record.decode_tokens > sequences_) {
      sequences_ = record.decode_tokens;
      decode_seconds = 0;
      decode_tokens = decode_steps = 0;
      decode_ops.clear();
    }
    if (record.decode_tokens == sequences_) {
      add_times(ops, decode_ops);
      decode_seconds += to_seconds(record.duration);
      decode_tokens += record.decode_tokens;
      ++decode_steps;
    }
  }

  device::OpTimes& op_times_;
  int64_t sequences_ = 0;  // the most that decoded in a step
};

// Takes tokens as a server's loop would; they are let go of outside the engine's time.
class EventStore final : public TokenSink {
 public:
  void deliver(std::vector<TokenEvent> events) override { events_ = std::move(events); }
  void clear() { events_.clear(); }

 private:
  std::vector<TokenEvent> events_;
};

struct Row {
  int32_t batch = 0;
  double prefill_tokens_per_second = 0;
  double decode_tokens_per_second = 0;
  double decode_step_seconds = 0;
  double engine_work_seconds = 0;
  double prefill_tokens = 0;  // of all passes, as are the ops
  double decode_steps = 0;
  OpTable prefill_ops;
  OpTable decode_ops;
};

class Runner {
 public:
  Runner(const BenchModelOptions& options, const PlannedModel& model, LoadedModel& loaded,
         const ScheduledModel& scheduled, Bell& bell, device::OpTimes& op_times)
      : options_(options),
        model_(model),
        loaded_(loaded),
        scheduled_(scheduled),
        bell_(bell),
        op_times_(op_times) {}

  Row measure(int32_t batch) {
    std::vector<double> prefill;
    std::vector<double> decode;
    std::vector<double> step;
    std::vector<double> work;
    Row row;
    for (int32_t pass = 0; pass < options_.passes + 1; ++pass) {
      const StepTimes times = run(batch);
      if (pass == 0) {
        continue;  // pages and caches warm up
      }
      prefill.push_back(static_cast<double>(times.prefill_tokens) / times.prefill_seconds);
      if (times.decode_steps > 0) {
        decode.push_back(static_cast<double>(times.decode_tokens) / times.decode_seconds);
        step.push_back(times.decode_seconds / static_cast<double>(times.decode_steps));
      }
      work.push_back(median_of(times.engine_work));
      row.prefill_tokens += static_cast<double>(times.prefill_tokens);
      row.decode_steps += static_cast<double>(times.decode_steps);
      add_times(times.prefill_ops, row.prefill_ops);
      add_times(times.decode_ops, row.decode_ops);
    }
    row.batch = batch;
    row.prefill_tokens_per_second = median_of(prefill);
    row.decode_tokens_per_second = median_of(decode);
    row.decode_step_seconds = median_of(step);
    row.engine_work_seconds = median_of(work);
    return row;
  }

 private:
  StepTimes run(int32_t batch) {
    static_cast<void>(op_times_.take());
    StepTimes times(op_times_);
    EngineConfig config = engine_config(options_.node, model_, scheduled_.profile.get());
    config.prefix_caching = PrefixCaching::kOff;
    Engine engine(config, {.executor = *loaded_.executor,
                           .policy = *scheduled_.policy.step,
                           .clock = clock_,
                           .observer = times});
    EngineInputs inputs;
    for (int32_t i = 0; i < batch; ++i) {
      inputs.emplace_back(Engine::make_arrival(RequestId{i + 1}, request(), clock_.now(),
                                               model_.plan.block_tokens));
    }
    while (engine.advance(clock_.now(), inputs).activity == EngineActivity::kStepRunning) {
      events_->clear();
      bell_.wait();
    }
    return times;
  }

  Request request() {
    Request one;
    std::uniform_int_distribution<TokenId> token(0, model_.folder.config.vocabulary - 1);
    one.prompt.resize(static_cast<size_t>(options_.prompt_tokens));
    std::ranges::generate(one.prompt, [&] { return token(random_); });
    one.sampling.temperature = 0.0F;
    one.sampling.ignore_eos = true;
    one.sampling.max_tokens = options_.output_tokens;
    one.sink = events_;
    return one;
  }

  const BenchModelOptions& options_;
  const PlannedModel& model_;
  LoadedModel& loaded_;
  const ScheduledModel& scheduled_;
  Bell& bell_;
  device::OpTimes& op_times_;
  SteadyClock clock_;
  std::mt19937 random_{1};
  std::shared_ptr<EventStore> events_ = std::make_shared<EventStore>();
};

// Means of one pass's unit (a prompt token, a decode step), largest share first.
void print_ops(OpTable ops, double units, const char* unit) {
  if (units == 0 || ops.empty()) {
    return;
  }
  std::ranges::sort(ops, std::greater<>(), &device::OpTime::total);
  double all = 0;
  for (const device::OpTime& op : ops) {
    all += to_seconds(op.total);
  }
  for (const device::OpTime& op : ops) {
    fmt::print("  {:22} {:>10.2f} us per {:12} {:>5.1f} %  {:>10.2f} us each\n", op.name,
               to_seconds(op.total) * 1e6 / units, unit, 100 * to_seconds(op.total) / all,
               to_seconds(op.total) * 1e6 / static_cast<double>(op.count));
  }
}

nlohmann::ordered_json ops_json(const OpTable& ops) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const device::OpTime& op : ops) {
    json.push_back({{"op", op.name}, {"count", op.count}, {"seconds", to_seconds(op.total)}});
  }
  return json;
}

Status write_json(const std::string& path, const std::vector<Row>& rows,
                  const BenchModelOptions& options, const PlannedModel& model) {
  nlohmann::ordered_json json;
  json["config"] = nlohmann::json::parse(effective_config_json(options.node, model));
  json["flags"] = nlohmann::ordered_json::parse(options.flags);
  json["prompt_tokens"] = options.prompt_tokens;
  json["output_tokens"] = options.output_tokens;
  for (const Row& row : rows) {
    json["rows"].push_back({{"batch", row.batch},
                            {"prefill_tokens_per_second", row.prefill_tokens_per_second},
                            {"decode_tokens_per_second", row.decode_tokens_per_second},
                            {"decode_step_seconds", row.decode_step_seconds},
                            {"engine_work_seconds", row.engine_work_seconds},
                            {"prefill_ops", ops_json(row.prefill_ops)},
                            {"decode_ops", ops_json(row.decode_ops)}});
  }
  std::ofstream file(path);
  file << json.dump(1) << "\n";
  file.flush();
  return file.good()
             ? Status{}
             : Status{Error{ErrorCode::kIo, fmt::format("cannot write '{}'", path), "json"}};
}

Status run_bench(BenchModelOptions& options) {
  Bell bell;
  device::OpTimes op_times;
  if (options.with_ops) {
    options.node.device.op_times = &op_times;
  }
  options.node.max_num_seqs =
      std::max(options.node.max_num_seqs, std::ranges::max(options.batches));
  choose_plain_policy(options.node);
  const SteadyClock clock;
  ASSIGN_OR_RETURN(const SoleModel opened, open_model(options.node, clock));
  const PlannedModel& model = opened.model;
  if (options.prompt_tokens + options.output_tokens > model.plan.max_model_len) {
    return invalid_argument(
        fmt::format("{} prompt and {} output tokens are more than the {} of a sequence",
                    options.prompt_tokens, options.output_tokens, model.plan.max_model_len));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> loaded,
                   load_model(model, {}, [&bell] { bell.ring(); }));
  ASSIGN_OR_RETURN(const ScheduledModel scheduled,
                   complete_model(options.node, model, *loaded, bell, clock, {}));
  fmt::print("{}, {} on {}: {} prompt tokens, {} output tokens, medians of {}\n",
             model.folder.config.architecture_name, model.format.name(), model.device.caps().name,
             options.prompt_tokens, options.output_tokens, options.passes);
  fmt::print("{:>6} {:>18} {:>18} {:>14} {:>14}\n", "batch", "prefill tokens/s", "decode tokens/s",
             "ms per step", "engine us/step");
  Runner runner(options, model, *loaded, scheduled, bell, op_times);
  std::vector<Row> rows;
  for (const int32_t batch : options.batches) {
    rows.push_back(runner.measure(batch));
    const Row& row = rows.back();
    fmt::print("{:>6} {:>18.1f} {:>18.1f} {:>14.2f} {:>14.1f}\n", row.batch,
               row.prefill_tokens_per_second, row.decode_tokens_per_second,
               row.decode_step_seconds * 1e3, row.engine_work_seconds * 1e6);
    print_ops(row.prefill_ops, row.prefill_tokens, "prompt token");
    print_ops(row.decode_ops, row.decode_steps, "decode step");
    std::fflush(stdout);
  }
  return options.json_path.empty() ? Status{} : write_json(options.json_path, rows, options, model);
}

}  // namespace

int bench_model(BenchModelOptions options) {
  const Status status = run_bench(options);
  if (!status.ok()) {
    log::error("{}", status.error().message);
    return cli::exit_code_of(status.error().code);
  }
  return 0;
}

}  // namespace tandem::bench
