#include "node/engine_meter.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "plan/fcfs_order.h"

namespace tandem {

using latency::Batch;
using latency::BatchLimits;

// An executor that runs steps, or pretends to have: then its slices' blocks get copies of a block
// that was computed, and made-up tokens are sampled.
class EngineMeter::Rehearsal final : public StepExecutor {
 public:
  enum class Mode : uint8_t { kPretend, kRun };

  Rehearsal(StepExecutor& executor, Bell& bell)
      : executor_(executor),
        bell_(bell),
        pretended_limits_(executor.limits()),
        filled_(static_cast<size_t>(executor.limits().total_blocks), false) {
    pretended_limits_.max_batched_tokens = std::numeric_limits<int32_t>::max() / 2;
  }

  void set_mode(Mode mode) { mode_ = mode; }
  // The step in flight needs the device: its end is signalled.
  [[nodiscard]] bool computes() const { return computes_; }

  // Of the executor, but a pretended step may have any number of tokens.
  [[nodiscard]] const ExecutorLimits& limits() const override { return pretended_limits_; }
  [[nodiscard]] const ExecutorLimits& real_limits() const { return executor_.limits(); }
  void launch(const StepInput& input) override {
    if (mode_ == Mode::kRun) {
      computes_ = true;
      executor_.launch(input);
      return;
    }
    pretended_ = StepResult{.step = input.step, .samples = {}, .scored = {}, .visitors = {}};
    StepInput copies;
    copies.step = input.step;
    for (const StepSlice& slice : input.slices) {
      fill(slice, copies);
      for (const SampleSpec& spec : slice.samples) {
        pretended_->samples.push_back({spec.sequence, TokenId{0}, nullptr});
      }
    }
    computes_ = !copies.copies.empty();
    if (computes_) {
      executor_.launch(copies);
    }
  }
  bool poll(StepResult& result) override {
    const bool computed = computes_;
    if (computed && !executor_.poll(result)) {
      return false;
    }
    computes_ = false;
    if (pretended_.has_value()) {
      result = std::move(*pretended_);
      pretended_.reset();
      return true;
    }
    return computed;
  }
  void leave(SequenceId offloaded) override { executor_.leave(offloaded); }
  [[nodiscard]] TierEvents take_tier_events() override { return executor_.take_tier_events(); }
  [[nodiscard]] TierCounts tier_counts() const override { return executor_.tier_counts(); }
  [[nodiscard]] const Error* failure() const override { return executor_.failure(); }
  [[nodiscard]] int32_t next_stage(SequenceId offloaded) const override {
    return executor_.next_stage(offloaded);
  }

 private:
  // The block that is copied is the first one that a step has really written.
  void fill(const StepSlice& slice, StepInput& copies) {
    const int32_t last = slice.first_position + static_cast<int32_t>(slice.tokens.size()) - 1;
    const auto blocks = static_cast<size_t>(last / limits().block_tokens) + 1;
    for (const BlockId block : slice.block_table.first(blocks)) {
      if (!source_.has_value()) {
        compute_source(block, slice.tokens);
      }
      if (!filled_.at(static_cast<size_t>(raw(block)))) {
        filled_.at(static_cast<size_t>(raw(block))) = true;
        copies.copies.push_back({*source_, block});
      }
    }
  }
  void compute_source(BlockId block, std::span<const TokenId> tokens) {
    std::vector<TokenId> text(
        static_cast<size_t>(std::min(limits().block_tokens, real_limits().max_batched_tokens)));
    for (size_t i = 0; i < text.size(); ++i) {
      text[i] = tokens[i % tokens.size()];
    }
    StepInput input;
    input.slices.push_back({.sequence = SequenceId{1},
                            .tokens = text,
                            .first_position = 0,
                            .block_table = std::span(&block, 1)});
    executor_.launch(input);
    StepResult result;
    while (!executor_.poll(result)) {
      bell_.wait();
    }
    source_ = block;
    filled_.at(static_cast<size_t>(raw(block))) = true;
  }

  StepExecutor& executor_;
  Bell& bell_;
  ExecutorLimits pretended_limits_;
  Mode mode_ = Mode::kPretend;
  bool computes_ = false;
  std::optional<StepResult> pretended_;
  std::optional<BlockId> source_;
  std::vector<bool> filled_;  // by block
};

// Brings each sequence to where the batch wants it, then plans the batch.
class EngineMeter::Script final : public StepPolicy {
 public:
  struct Part {
    int32_t before = 0;  // tokens computed before the step in question
    int32_t rows = 0;    // in it
  };

  explicit Script(Rehearsal& executor) : executor_(executor) {}
  // Parts by sequence, in the order of their arrival; the engine numbers them from 1.
  void begin(std::vector<Part> parts) {
    first_ += static_cast<int64_t>(parts_.size());
    parts_ = std::move(parts);
    planned_ = false;
  }
  [[nodiscard]] bool planned() const { return planned_; }

  [[nodiscard]] std::string_view name() const override { return "batch"; }
  [[nodiscard]] std::unique_ptr<QueueOrder> make_queue_order() const override {
    return fcfs_order(FcfsOrder::By::kArrival);
  }
  StepPlan plan(const SystemView& view) override {
    StepPlan plan;
    for (const SequenceView& sequence : view.waiting) {
      const int32_t before = part_of(sequence.id).before;
      if (before > 0) {
        plan.admit.push_back(sequence.id);
        plan.slices.push_back({sequence.id, before});
      }
    }
    if (!plan.slices.empty()) {
      executor_.set_mode(Rehearsal::Mode::kPretend);
      return plan;
    }
    for (const SequenceView& sequence : view.running) {
      plan.slices.push_back({sequence.id, part_of(sequence.id).rows});
    }
    for (const SequenceView& sequence : view.waiting) {
      plan.admit.push_back(sequence.id);
      plan.slices.push_back({sequence.id, part_of(sequence.id).rows});
    }
    CHECK(plan.slices.size() == parts_.size(),
          "the queue shows {} of a batch's {} sequences: too many prompts without a token before",
          plan.slices.size(), parts_.size());
    executor_.set_mode(Rehearsal::Mode::kRun);
    planned_ = true;
    return plan;
  }

 private:
  [[nodiscard]] const Part& part_of(SequenceId id) const {
    return parts_.at(static_cast<size_t>(raw(id) - first_));
  }

  Rehearsal& executor_;
  std::vector<Part> parts_;
  int64_t first_ = 1;  // id of parts_[0]
  bool planned_ = false;
};

class EngineMeter::Watch final : public observe::EngineObserver {
 public:
  void on_step(const observe::StepRecord& record) override { duration_ = record.duration; }
  void on_gauges(const observe::EngineGauges&) override {}
  void on_request(const observe::RequestRecord&) override {}
  [[nodiscard]] Nanos duration() const { return duration_; }

 private:
  Nanos duration_{0};  // of the last step
};

EngineMeter::EngineMeter(const EngineMeterOptions& options, StepExecutor& executor, Bell& bell,
                         const Clock& clock)
    : options_(options),
      bell_(bell),
      clock_(clock),
      executor_(std::make_unique<Rehearsal>(executor, bell)),
      script_(std::make_unique<Script>(*executor_)),
      watch_(std::make_unique<Watch>()) {
  EngineConfig config;
  config.max_running = options.max_running;
  config.max_model_len = options.max_model_len;
  config.prefix_caching = PrefixCaching::kOff;
  engine_ = std::make_unique<Engine>(
      config,
      EngineParts{.executor = *executor_, .policy = *script_, .clock = clock, .observer = *watch_});
}

EngineMeter::~EngineMeter() = default;

BatchLimits EngineMeter::limits() const {
  const ExecutorLimits& limits = executor_->real_limits();
  return {.rows = limits.max_batched_tokens,
          .sequences = std::min(options_.max_running, limits.max_logit_rows),
          // Room for two tokens: a sequence that is full has ended.
          .context = options_.max_model_len - 2,
          .tokens = std::min(limits.total_blocks * limits.block_tokens, options_.most_tokens),
          .block_tokens = limits.block_tokens};
}

Request EngineMeter::request(int32_t prompt_tokens) {
  Request request;
  request.prompt.resize(static_cast<size_t>(prompt_tokens));
  for (TokenId& token : request.prompt) {
    random_ = random_ * 6364136223846793005ULL + 1442695040888963407ULL;
    token = static_cast<TokenId>((random_ >> 33) % static_cast<uint64_t>(options_.vocabulary));
  }
  request.sampling.ignore_eos = true;
  request.sampling.max_tokens = options_.max_model_len;
  return request;
}

// Sequences that are to be there before come first, so that the queue shows them first.
void EngineMeter::post(const Batch& batch) {
  std::vector<Script::Part> parts;
  const auto add = [&](int32_t before, int32_t rows, int32_t prompt_tokens) {
    parts.push_back({before, rows});
    inputs_.emplace_back(Engine::make_arrival(RequestId{next_request_++}, request(prompt_tokens),
                                              clock_.now(), executor_->limits().block_tokens));
  };
  for (const int32_t context : batch.contexts) {
    add(context - 1, 1, context - 1);
  }
  for (const bool fresh : {false, true}) {
    for (const Batch::Prompt& prompt : batch.prompts) {
      if ((prompt.computed_tokens == 0) == fresh) {
        add(prompt.computed_tokens, prompt.rows,
            prompt.computed_tokens + prompt.rows + 1 - prompt.logits);
      }
    }
  }
  script_->begin(std::move(parts));
}

Result<Nanos> EngineMeter::measure(const Batch& batch) {
  RETURN_IF_ERROR(latency::check_batch(batch, limits()));
  post(batch);
  while (!script_->planned()) {
    if (executor_->computes()) {
      bell_.wait();
    }
    const EngineActivity activity = engine_->advance(clock_.now(), inputs_).activity;
    if (activity == EngineActivity::kFailed) {
      return *engine_->failure();
    }
    CHECK(activity == EngineActivity::kStepRunning, "no step of a batch of {} runs",
          batch.prompts.size() + batch.contexts.size());
  }
  cancel_all(*engine_, inputs_);  // so that nothing is planned when the step is done
  EngineActivity activity = EngineActivity::kStepRunning;
  while (activity == EngineActivity::kStepRunning) {
    bell_.wait();
    activity = engine_->advance(clock_.now(), inputs_).activity;
  }
  if (activity == EngineActivity::kFailed) {
    return *engine_->failure();
  }
  CHECK(activity == EngineActivity::kIdle, "something is left of a batch");
  return watch_->duration();
}

}  // namespace tandem
