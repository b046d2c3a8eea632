#include "bench/model_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>

#include "base/log.h"
#include "engine/engine.h"

namespace tandem::bench {
namespace {

// Lets the measuring thread sleep while a step runs.
class StepSignal {
 public:
  void completed() {
    const std::lock_guard lock(mutex_);
    completed_ = true;
    wake_.notify_one();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return completed_; });
    completed_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool completed_ = false;
};

// Sums the steps' times, prompts and decodes apart.
class StepTimes final : public observe::EngineObserver {
 public:
  void on_step(const observe::StepRecord& record) override {
    if (record.prefill_tokens > 0) {
      prefill_seconds += to_seconds(record.duration);
      prefill_tokens += record.prefill_tokens;
    } else {
      decode_seconds += to_seconds(record.duration);
      decode_tokens += record.decode_tokens;
      ++decode_steps;
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
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0.0 : values[values.size() / 2];
}

struct Row {
  int32_t batch = 0;
  double prefill_tokens_per_second = 0;
  double decode_tokens_per_second = 0;
  double decode_step_seconds = 0;
  double engine_work_seconds = 0;
};

class Runner {
 public:
  Runner(const BenchModelOptions& options, ModelOnDevice& parts, StepSignal& signal)
      : options_(options), parts_(parts), signal_(signal) {}

  Row measure(int32_t batch) {
    std::vector<double> prefill;
    std::vector<double> decode;
    std::vector<double> step;
    std::vector<double> work;
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
      work.push_back(median(times.engine_work));
    }
    return {batch, median(prefill), median(decode), median(step), median(work)};
  }

 private:
  StepTimes run(int32_t batch) {
    StepTimes times;
    EngineConfig config = engine_config(options_.node, parts_);
    config.prefix_caching = PrefixCaching::kOff;
    Engine engine(config, *parts_.executor, *parts_.policy, clock_, &times, nullptr);
    for (int32_t i = 0; i < batch; ++i) {
      engine.post(Engine::make_arrival(RequestId{i + 1}, request(), clock_.now(),
                                       parts_.plan.block_tokens));
    }
    while (engine.advance(clock_.now()) == EngineActivity::kStepRunning) {
      signal_.wait();
    }
    return times;
  }

  Request request() {
    Request one;
    std::uniform_int_distribution<TokenId> token(0, parts_.folder.config.vocabulary - 1);
    one.prompt.resize(static_cast<size_t>(options_.prompt_tokens));
    std::ranges::generate(one.prompt, [&] { return token(random_); });
    one.sampling.temperature = 0.0F;
    one.sampling.ignore_eos = true;
    one.sampling.max_tokens = options_.output_tokens;
    return one;
  }

  const BenchModelOptions& options_;
  ModelOnDevice& parts_;
  StepSignal& signal_;
  SteadyClock clock_;
  std::mt19937 random_{1};
};

Status write_json(const std::string& path, const std::vector<Row>& rows,
                  const BenchModelOptions& options, const ModelOnDevice& parts) {
  nlohmann::ordered_json json;
  json["config"] = nlohmann::json::parse(effective_config_json(options.node, parts));
  json["prompt_tokens"] = options.prompt_tokens;
  json["output_tokens"] = options.output_tokens;
  for (const Row& row : rows) {
    json["rows"].push_back({{"batch", row.batch},
                            {"prefill_tokens_per_second", row.prefill_tokens_per_second},
                            {"decode_tokens_per_second", row.decode_tokens_per_second},
                            {"decode_step_seconds", row.decode_step_seconds},
                            {"engine_work_seconds", row.engine_work_seconds}});
  }
  std::ofstream file(path);
  file << json.dump(1) << "\n";
  file.flush();
  return file.good()
             ? Status{}
             : Status{Error{ErrorCode::kIo, fmt::format("cannot write '{}'", path), "json"}};
}

Status run_bench(BenchModelOptions& options) {
  StepSignal signal;
  options.node.max_num_seqs =
      std::max(options.node.max_num_seqs, std::ranges::max(options.batches));
  const SteadyClock clock;
  ASSIGN_OR_RETURN(ModelOnDevice parts, open_model(options.node, clock));
  if (options.prompt_tokens + options.output_tokens > parts.plan.max_model_len) {
    return invalid_argument(
        fmt::format("{} prompt and {} output tokens are more than the {} of a sequence",
                    options.prompt_tokens, options.output_tokens, parts.plan.max_model_len));
  }
  RETURN_IF_ERROR(load_model(parts, {}, [&signal] { signal.completed(); }));
  fmt::print("{}, {} on {}: {} prompt tokens, {} output tokens, medians of {}\n",
             parts.folder.config.architecture_name, element_name(parts.dtype),
             parts.device->caps().name, options.prompt_tokens, options.output_tokens,
             options.passes);
  fmt::print("{:>6} {:>18} {:>18} {:>14} {:>14}\n", "batch", "prefill tokens/s", "decode tokens/s",
             "ms per step", "engine us/step");
  Runner runner(options, parts, signal);
  std::vector<Row> rows;
  for (const int32_t batch : options.batches) {
    rows.push_back(runner.measure(batch));
    const Row& row = rows.back();
    fmt::print("{:>6} {:>18.1f} {:>18.1f} {:>14.2f} {:>14.1f}\n", row.batch,
               row.prefill_tokens_per_second, row.decode_tokens_per_second,
               row.decode_step_seconds * 1e3, row.engine_work_seconds * 1e6);
    std::fflush(stdout);
  }
  return options.json_path.empty() ? Status{} : write_json(options.json_path, rows, options, parts);
}

}  // namespace

int bench_model(BenchModelOptions options) {
  const Status status = run_bench(options);
  if (!status.ok()) {
    log::error("{}", status.error().message);
    return 1;
  }
  return 0;
}

}  // namespace tandem::bench
