#include "sim/engine_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "node/refusal.h"

namespace tandem::sim {
namespace {

constexpr int64_t kWake = 0;  // other numbers: those of timers

}  // namespace

// The policy, whose planning takes time.
class EngineDriver::TimedPolicy final : public StepPolicy {
 public:
  TimedPolicy(StepPolicy& policy, VirtualTime& time, const EngineCosts& costs)
      : policy_(policy), time_(time), costs_(costs) {}
  [[nodiscard]] std::string_view name() const override { return policy_.name(); }
  [[nodiscard]] std::unique_ptr<QueueOrder> make_queue_order() const override {
    return policy_.make_queue_order();
  }
  [[nodiscard]] bool reads_stages() const override { return policy_.reads_stages(); }
  StepPlan plan(const SystemView& view) override {
    StepPlan plan = policy_.plan(view);
    time_.spend(costs_.plan + costs_.sequence * std::ssize(view.running));
    return plan;
  }

 private:
  StepPolicy& policy_;
  VirtualTime& time_;
  const EngineCosts costs_;
};

EngineDriver::EngineDriver(VirtualTime& time, const EngineCosts& costs, const Bounds& bounds)
    : time_(time), costs_(costs), bounds_(bounds) {}
EngineDriver::~EngineDriver() { time_.forget(*this); }

void EngineDriver::start(const EngineConfig& config, const EngineParts& parts) {
  policy_ = std::make_unique<TimedPolicy>(parts.policy, time_, costs_);
  engine_ = std::make_unique<Engine>(config, EngineParts{.executor = parts.executor,
                                                         .policy = *policy_,
                                                         .clock = time_,
                                                         .observer = parts.observer,
                                                         .recorder = parts.recorder,
                                                         .step_times = parts.step_times,
                                                         .host_times = parts.host_times,
                                                         .admission = parts.admission});
  busy_until_ = time_.now();
}

void EngineDriver::completed() {
  if (engine_ != nullptr) {
    wake();
  }
}

void EngineDriver::wake() {
  if (!asked_) {
    asked_ = true;
    time_.ask(std::max(time_.now(), busy_until_), *this, kWake);
  }
}

// One timer runs at most. If it rings too early, because what it was for has moved, the next is
// asked for then; one that is needed earlier takes its place.
void EngineDriver::wake_at(Nanos when) {
  wanted_ = when;
  if (wanted_ < timer_at_) {
    timer_at_ = wanted_;
    time_.ask(timer_at_, *this, ++timer_);
  }
}

void EngineDriver::on_timer() {
  timer_at_ = Nanos::max();
  if (wanted_ <= time_.now()) {
    wake();
  } else {
    wake_at(wanted_);
  }
}

std::optional<Refusal> EngineDriver::refusal_of(const Request& request) const {
  Refusal refusal;
  const int64_t tokens = std::ssize(request.prompt) + request.sampling.max_tokens;
  if (tokens > bounds_.max_model_len) {
    refusal.error = invalid_argument(
        fmt::format("{} tokens are more than the {} of a sequence; raise max-model-len, or cut the "
                    "load by max-input-len and max-output-len",
                    tokens, bounds_.max_model_len));
    refusal.reason = "too_long";
    return refusal;
  }
  const EngineLoad load = engine_->load();
  const bool flex = request.service_class == ServiceClass::kBestEffort;
  const int64_t best_effort = load.waiting_best_effort + inputs_best_effort_;
  const int64_t waiting = flex ? best_effort : load.waiting + std::ssize(inputs_) - best_effort;
  if (waiting >= (flex ? bounds_.max_queue_flex : bounds_.max_queue)) {
    refusal.error = {ErrorCode::kOverloaded, fmt::format("{} requests wait", waiting), ""};
    refusal.reason = "queue_full";
    return refusal;
  }
  return std::nullopt;
}

// While the engine works nobody is admitted: the door stays shut until it has finished. That is
// some microseconds; the answer is given as of now.
std::optional<Refusal> EngineDriver::submit(RequestId id, Request request) {
  if (std::optional<Refusal> refusal = refusal_of(request)) {
    return refusal;
  }
  const bool flex = request.service_class == ServiceClass::kBestEffort;
  Arrival arrival = Engine::make_arrival(id, std::move(request), time_.now(), bounds_.block_tokens);
  if (engine_->has_admission()) {
    const AdmissionBook::Answer answer = engine_->consider(arrival, time_.now());
    if (answer.verdict.answer == AdmissionAnswer::kRefuse) {
      return describe_refusal(answer.ask, answer.verdict);
    }
  }
  inputs_best_effort_ += flex ? 1 : 0;
  tell(std::move(arrival));
  return std::nullopt;
}

void EngineDriver::tell(EngineInput input) {
  inputs_.push_back(std::move(input));
  if (activity_ != EngineActivity::kStepRunning) {
    wake();
  }
}

void EngineDriver::on_time(int64_t what) {
  if (what != kWake) {
    if (what == timer_) {
      on_timer();
    }
    return;
  }
  asked_ = false;
  if (engine_ == nullptr) {
    return;
  }
  time_.spend(costs_.advance);
  const EngineAdvance advance = engine_->advance(time_.now(), inputs_);
  ++advances_;
  if (inputs_.empty()) {
    inputs_best_effort_ = 0;
  }
  activity_ = advance.activity;
  busy_until_ = time_.now();
  // Inputs that are left wait for the step in flight: its completion wakes the engine.
  wake_at(activity_ == EngineActivity::kIdle ? Nanos::max() : advance.next_wakeup);
}

}  // namespace tandem::sim
