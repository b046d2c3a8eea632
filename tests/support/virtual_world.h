// An engine in virtual time with the echo executor: requests arrive, time moves to the next event,
// everything that comes out is kept. The same result on every machine.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "latency/corrected_model.h"
#include "latency/modular_model.h"
#include "scheduler/fill_binder.h"
#include "scheduler/policies/apex.h"
#include "scheduler/policies/hygen.h"
#include "scheduler/policies/llumnix.h"
#include "scheduler/policies/neo.h"
#include "scheduler/policies/omniserve.h"
#include "scheduler/policies/piggyback.h"
#include "scheduler/policies/registry.h"
#include "scheduler/policies/sarathi.h"
#include "support/echo_executor.h"
#include "support/outcomes.h"

namespace tandem::testing {

struct WorldOptions {
  EchoOptions executor{};
  EngineConfig engine{};
  std::string policy = "accel_only";
  PolicyOptions policy_options{};
  // The policy's belief of the time of a step, in percent of the true time; and whether it learns
  // from the times of steps.
  int32_t belief_percent = 100;
  enum class Learning : uint8_t { kNo, kYes } learning = Learning::kYes;
  std::optional<latency::HostTimes> host_times;  // its beliefs of the host
  // Layers of the model in the policy's belief. The default is large, so that the attention of the
  // last layer does not matter: a modular model leaves it out if no row is sampled, the executor
  // does not.
  int32_t believed_layers = 10000;
  std::function<std::unique_ptr<StepPolicy>()> make_policy;  // instead of the named one
  enum class Admits : uint8_t { kNo, kYes } admits = Admits::kNo;
  // Wrappers between the engine and its policy or admission, which watch their answers.
  std::function<std::unique_ptr<StepPolicy>(StepPolicy&)> watch_policy;
  std::function<std::unique_ptr<Admission>(Admission&)> watch_admission;
  enum class Audit : uint8_t { kNo, kEachAdvance } audit = Audit::kNo;
};

// Sums over the steps of a world, and its ended choices.
struct StepSums final : observe::EngineObserver {
  void on_step(const observe::StepRecord& record) override {
    sampled_tokens += record.sampled_tokens;
    preemptions += record.preempted;
    put_off += record.put_off;
    let_in += record.let_in;
    straight += record.straight_to_host;
    lane_moves += record.lane_moves;
    mode_changes += record.mode_changed ? 1 : 0;
  }
  void on_gauges(const observe::EngineGauges&) override {}
  void on_request(const observe::RequestRecord& record) override { requests.push_back(record); }
  std::vector<observe::RequestRecord> requests;
  int64_t sampled_tokens = 0;
  int64_t preemptions = 0;
  int64_t put_off = 0;
  int64_t let_in = 0;
  int64_t straight = 0;
  int64_t lane_moves = 0;
  int64_t mode_changes = 0;
};

// Without staging layers if the named policy does not use them.
inline WorldOptions with_tiers_of_policy(WorldOptions options) {
  if (!options.make_policy && !policy_traits(options.policy).stages_prompts) {
    options.executor.limits.staging_blocks = 0;
  }
  return options;
}

// The step times in the belief of the world's policies.
inline latency::CorrectedModel believed(const WorldOptions& options) {
  const auto scaled = [&](Nanos truth) { return truth * options.belief_percent / 100; };
  const double attended = static_cast<double>(scaled(options.executor.per_attended).count());
  return latency::CorrectedModel(std::make_unique<latency::ModularModel>(
      latency::simple_model({.layers = options.believed_layers,
                             .fixed = scaled(options.executor.step_fixed),
                             .per_row = scaled(options.executor.per_token),
                             .per_context_nanos = attended,
                             .per_pair_nanos = attended})));
}

// The policy that `options` name. What it borrows of the two arguments must outlive it.
inline PolicyParts policy_parts(const WorldOptions& options,
                                const latency::CorrectedModel& step_times) {
  PolicyParts parts =
      make_policy(options.policy, options.policy_options,
                  {.step_times = &step_times,
                   .host_times = options.host_times ? &*options.host_times : nullptr})
          .value();
  if (options.admits == WorldOptions::Admits::kNo) {
    parts.admission = nullptr;
  }
  return parts;
}

class VirtualWorld final {
 public:
  explicit VirtualWorld(WorldOptions options)
      : options_(fill_in(std::move(options))),
        executor_(options_.executor, clock_),
        step_times_(believed(options_)),
        policy_(options_.make_policy ? PolicyParts{options_.make_policy(), fill_binder, nullptr}
                                     : policy_parts(options_, step_times_)),
        policy_watch_(options_.watch_policy ? options_.watch_policy(*policy_.step) : nullptr),
        admission_watch_(options_.watch_admission && policy_.admission != nullptr
                             ? options_.watch_admission(*policy_.admission)
                             : nullptr),
        sink_(std::make_shared<Outcomes>(clock_, &observer_.sampled_tokens)),
        engine_(
            options_.engine,
            {.executor = executor_,
             .policy = policy_watch_ ? *policy_watch_ : *policy_.step,
             .clock = clock_,
             .observer = observer_,
             .step_times =
                 options_.learning == WorldOptions::Learning::kYes ? &step_times_ : nullptr,
             .admission = admission_watch_ ? admission_watch_.get() : policy_.admission.get()}) {}

  // At `at`, a request arrives. Its sink is the world.
  void arrive(Nanos at, int64_t id, Request request) {
    request.sink = sink_;
    request.sink_tag = static_cast<uint64_t>(id);
    inputs_.emplace(at, Engine::make_arrival(RequestId{id}, std::move(request), at,
                                             options_.executor.limits.block_tokens));
  }
  void cancel(Nanos at, int64_t id) { inputs_.emplace(at, EngineCancel{RequestId{id}}); }
  void stop(Nanos at, int64_t id, int32_t choice) {
    inputs_.emplace(at, EngineStop{RequestId{id}, choice});
  }

  void run_until_idle() {
    while (true) {
      while (!inputs_.empty() && inputs_.begin()->first <= clock_.now()) {
        take(inputs_.begin()->second);
        inputs_.erase(inputs_.begin());
      }
      const bool busy = engine_.advance(clock_.now(), inbox_).activity != EngineActivity::kIdle;
      if (options_.audit == WorldOptions::Audit::kEachAdvance) {
        const Status books = engine_.audit();
        CHECK(books.ok(), "{}", books.error().message);
      }
      if (!busy && inputs_.empty()) {
        return;
      }
      Nanos next = busy ? executor_.next_event() : inputs_.begin()->first;
      if (!inputs_.empty()) {
        next = std::min(next, inputs_.begin()->first);
      }
      clock_.set(std::max(next, clock_.now()));
    }
  }

  [[nodiscard]] const Outcome& outcome(int64_t id, int32_t choice = 0) {
    return sink_->of(id, choice);
  }
  [[nodiscard]] const Engine& engine() const { return engine_; }
  [[nodiscard]] const EchoExecutor& executor() const { return executor_; }
  [[nodiscard]] int64_t preemptions() const { return observer_.preemptions; }
  [[nodiscard]] int64_t steps() const { return executor_.steps(); }
  [[nodiscard]] int64_t offloaded() const { return executor_.host().entered(); }
  [[nodiscard]] int64_t transfers() const { return executor_.host().transfers(); }
  [[nodiscard]] bool drained() const { return executor_.host().drained(); }
  // Parts of plans for which there was no room.
  [[nodiscard]] int64_t put_off() const { return observer_.put_off; }
  // Of tokens on the host, as StepRecord counts them.
  [[nodiscard]] int64_t let_in() const { return observer_.let_in; }
  [[nodiscard]] int64_t straight() const { return observer_.straight; }
  [[nodiscard]] int64_t lane_moves() const { return observer_.lane_moves; }
  [[nodiscard]] int64_t mode_changes() const { return observer_.mode_changes; }
  // Of ended choices, in the order of their ends.
  [[nodiscard]] const std::vector<observe::RequestRecord>& requests() const {
    return observer_.requests;
  }
  [[nodiscard]] Nanos now() const { return clock_.now(); }

 private:
  void take(EngineInput& input) {
    if (auto* arrival = std::get_if<Arrival>(&input);
        arrival != nullptr && engine_.has_admission()) {
      const auto tag = static_cast<int64_t>(arrival->request.sink_tag);
      const AdmissionVerdict verdict = engine_.consider(*arrival, clock_.now()).verdict;
      sink_->of(tag).verdict = verdict;
      if (verdict.answer == AdmissionAnswer::kRefuse) {
        return;
      }
    }
    inbox_.push_back(std::move(input));
  }

  static WorldOptions fill_in(WorldOptions options) {
    if (options.engine.max_model_len == 0) {
      options.engine.max_model_len = static_cast<int32_t>(options.executor.limits.total_blocks) *
                                     options.executor.limits.block_tokens;
    }
    options.engine.max_running =
        std::min(options.engine.max_running, options.executor.limits.max_logit_rows);
    return with_tiers_of_policy(std::move(options));
  }

  WorldOptions options_;
  ManualClock clock_;
  EchoExecutor executor_;
  latency::CorrectedModel step_times_;
  PolicyParts policy_;
  std::unique_ptr<StepPolicy> policy_watch_;
  std::unique_ptr<Admission> admission_watch_;
  StepSums observer_;
  std::shared_ptr<Outcomes> sink_;
  std::multimap<Nanos, EngineInput> inputs_;  // by the time when they come
  EngineInputs inbox_;                        // that have come
  Engine engine_;
};

// What a request must answer, whatever else runs.
inline std::vector<TokenId> expected_tokens(const Request& request, int32_t choice,
                                            int32_t vocabulary = 1000) {
  std::vector<TokenId> tokens = request.prompt;
  for (int32_t i = 0; i < request.sampling.max_tokens; ++i) {
    tokens.push_back(
        echo_next(tokens, *request.sampling.seed + static_cast<uint64_t>(choice), vocabulary));
  }
  return {tokens.begin() + static_cast<std::ptrdiff_t>(request.prompt.size()), tokens.end()};
}

inline Request make_request(std::vector<TokenId> prompt, int32_t max_tokens, uint64_t seed = 1) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.max_tokens = max_tokens;
  request.sampling.seed = seed;
  request.sampling.ignore_eos = true;
  return request;
}

}  // namespace tandem::testing
