// Drives an engine in virtual time by the rules of the engine's thread (node/engine_thread.h):
// while a step runs only its completion matters, else new inputs wake it too; it is busy for as
// long as its work takes. One thread.
#pragma once

#include <memory>
#include <optional>

#include "base/virtual_time.h"
#include "engine/engine.h"
#include "request/frontend.h"

namespace tandem::sim {

// What the engine's thread takes beside what it hands to the device, as `tandem bench visits` and
// `tandem bench scheduler` show it. Truth: nobody plans by it.
struct EngineCosts {
  Nanos advance{std::chrono::microseconds(8)};    // to look at what has happened
  Nanos plan{std::chrono::microseconds(12)};      // of a step, and
  Nanos sequence{std::chrono::nanoseconds(120)};  // for each running sequence
};

class EngineDriver final : public VirtualTime::Actor {
 public:
  struct Bounds {
    int64_t max_queue = 0;  // waiting requests of a class, as EngineThreadOptions
    int64_t max_queue_flex = 0;
    int32_t max_model_len = 0;
    int32_t block_tokens = 0;
  };

  // `time` must outlive it.
  EngineDriver(VirtualTime& time, const EngineCosts& costs, const Bounds& bounds);
  ~EngineDriver() override;
  EngineDriver(const EngineDriver&) = delete;
  EngineDriver& operator=(const EngineDriver&) = delete;

  // `parts.policy` is asked through the driver, which takes its time. The engine must be ended
  // before what it uses.
  void start(const EngineConfig& config, const EngineParts& parts);
  void end() { engine_.reset(); }

  // Something has completed: the executor's listener.
  void completed();
  // As EngineThread::submit, at the time that it is now.
  std::optional<Refusal> submit(RequestId id, Request request);
  // What a client says of a request that was submitted: a cancellation or a stop, not an arrival.
  void tell(EngineInput input);
  [[nodiscard]] bool idle() const {
    return activity_ == EngineActivity::kIdle && inputs_.empty() && !asked_;
  }
  [[nodiscard]] const Engine& engine() const { return *engine_; }
  [[nodiscard]] int64_t advances() const { return advances_; }

  void on_time(int64_t what) override;

 private:
  class TimedPolicy;
  void wake();
  void wake_at(Nanos when);  // Nanos::max(): not at all
  void on_timer();
  [[nodiscard]] std::optional<Refusal> refusal_of(const Request& request) const;

  VirtualTime& time_;
  const EngineCosts costs_;
  const Bounds bounds_;
  std::unique_ptr<TimedPolicy> policy_;
  std::unique_ptr<Engine> engine_;
  EngineInputs inputs_;
  int64_t inputs_best_effort_ = 0;
  EngineActivity activity_ = EngineActivity::kIdle;
  Nanos busy_until_{0};
  bool asked_ = false;  // a wake-up is on its way
  int64_t timer_ = 0;   // number of the last timer; earlier ones that still run count no more
  Nanos timer_at_ = Nanos::max();
  Nanos wanted_ = Nanos::max();  // when to be awake at the latest
  int64_t advances_ = 0;
};

}  // namespace tandem::sim
