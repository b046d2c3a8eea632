// An engine under omniserve on two tiers in virtual time, whose steps are run stage by stage
// (staged_executor.h). The same result on every machine.
#pragma once

#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "latency/corrected_model.h"
#include "scheduler/policies/omniserve.h"
#include "support/staged_executor.h"

namespace tandem::testing {

struct StagedWorldOptions {
  StagedOptions executor;
  OmniServeOptions policy;
  EngineConfig engine;
  // What the policy believes that a step takes, in percent of what it really takes.
  int32_t belief_percent = 100;
};

class StagedWorld {
 public:
  explicit StagedWorld(const StagedWorldOptions& options)
      : block_tokens_(options.executor.limits.block_tokens),
        step_times_(believed(options)),
        policy_(options.policy, step_times_),
        binder_(policy_.make_binder()),
        executor_(options.executor, clock_, *binder_),
        engine_(config_of(options), {.executor = executor_, .policy = policy_, .clock = clock_}),
        sink_(std::make_shared<Sink>(*this)) {}

  // Each prompt is another one.
  int64_t arrive(Nanos at, int32_t prompt_tokens, int32_t output_tokens, ServiceClass service_class,
                 std::optional<Nanos> tpot = std::nullopt) {
    Request request;
    request.prompt.resize(static_cast<size_t>(prompt_tokens));
    std::iota(request.prompt.begin(), request.prompt.end(), first_ += 100000);
    request.sampling.max_tokens = output_tokens;
    request.sampling.ignore_eos = true;
    request.service_class = service_class;
    request.slo.tpot = tpot;
    request.sink = sink_;
    request.sink_tag = static_cast<uint64_t>(++last_);
    inputs_.emplace(at,
                    Engine::make_arrival(RequestId{last_}, std::move(request), at, block_tokens_));
    return last_;
  }

  void run_until_idle() { run_until(Nanos::max()); }
  void run_until(Nanos end) {
    while (clock_.now() < end) {
      while (!inputs_.empty() && inputs_.begin()->first <= clock_.now()) {
        inbox_.push_back(std::move(inputs_.begin()->second));
        inputs_.erase(inputs_.begin());
      }
      const bool is_busy = engine_.advance(clock_.now(), inbox_).activity != EngineActivity::kIdle;
      const Status books = engine_.audit();
      CHECK(books.ok(), "{}", books.error().message);
      if (!is_busy && inputs_.empty()) {
        return;
      }
      Nanos next = is_busy ? executor_.next_event() : inputs_.begin()->first;
      if (!inputs_.empty()) {
        next = std::min(next, inputs_.begin()->first);
      }
      clock_.set(std::max(next, clock_.now()));
    }
  }

  [[nodiscard]] const StagedExecutor& executor() const { return executor_; }
  // When each token of a request came.
  [[nodiscard]] const std::vector<Nanos>& times(int64_t id) { return times_[id]; }
  [[nodiscard]] Nanos longest_gap(int64_t id) {
    const std::vector<Nanos>& times = times_[id];
    Nanos longest{0};
    for (size_t i = 1; i < times.size(); ++i) {
      longest = std::max(longest, times[i] - times[i - 1]);
    }
    return longest;
  }

 private:
  struct Sink final : TokenSink {
    explicit Sink(StagedWorld& w) : world(w) {}
    void deliver(std::vector<TokenEvent> events) override {
      for (const TokenEvent& event : events) {
        if (event.kind == TokenEvent::Kind::kToken) {
          world.times_[static_cast<int64_t>(event.tag)].push_back(world.clock_.now());
        }
      }
    }
    StagedWorld& world;
  };

  static latency::CorrectedModel believed(const StagedWorldOptions& options) {
    latency::SimpleCosts costs = options.executor.costs;
    const int32_t percent = options.belief_percent;
    costs.fixed = costs.fixed * percent / 100;
    costs.per_row = costs.per_row * percent / 100;
    costs.per_logit = costs.per_logit * percent / 100;
    costs.per_context_nanos *= percent / 100.0;
    costs.per_pair_nanos *= percent / 100.0;
    return latency::CorrectedModel(
        std::make_unique<latency::ModularModel>(latency::simple_model(costs)));
  }
  static EngineConfig config_of(const StagedWorldOptions& options) {
    EngineConfig config = options.engine;
    const ExecutorLimits& limits = options.executor.limits;
    config.max_model_len = static_cast<int32_t>(limits.total_blocks) * limits.block_tokens;
    config.max_running = std::min(config.max_running, limits.max_logit_rows);
    return config;
  }

  const int32_t block_tokens_;
  ManualClock clock_;
  const latency::CorrectedModel step_times_;
  OmniServePolicy policy_;
  std::unique_ptr<Binder> binder_;
  StagedExecutor executor_;
  Engine engine_;
  std::shared_ptr<Sink> sink_;
  std::multimap<Nanos, EngineInput> inputs_;  // by the time when they come
  EngineInputs inbox_;                        // that have come
  std::map<int64_t, std::vector<Nanos>> times_;
  int64_t last_ = 0;
  TokenId first_ = 0;
};

}  // namespace tandem::testing
