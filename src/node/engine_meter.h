// Times batches in the real engine: its plans, its executor, its device with all threads live. The
// batch's sequences come into being without being computed: their KV blocks are filled with copies
// of one that was, and only the step in question is run. So any batch costs little more than its
// own time.
//
// One thread; nothing else may use the executor meanwhile. What it leaves behind in the KV pool has
// no owner.
#pragma once

#include <cstdint>
#include <memory>

#include "base/bell.h"
#include "base/clock.h"
#include "base/result.h"
#include "engine/engine.h"
#include "latency/batch.h"
#include "plan/step.h"

namespace tandem {

struct EngineMeterOptions {
  int32_t vocabulary = 0;
  int32_t max_model_len = 0;
  int32_t max_running = 0;
  int64_t most_tokens = 1 << 16;  // of KV used at a time, so that a huge pool stays untouched
};

class EngineMeter final : public latency::BatchMeter {
 public:
  // `bell.ring` must be called by the executor's completion listener. All must outlive it.
  EngineMeter(const EngineMeterOptions& options, StepExecutor& executor, Bell& bell,
              const Clock& clock);
  ~EngineMeter() override;

  [[nodiscard]] latency::BatchLimits limits() const override;
  Result<Nanos> measure(const latency::Batch& batch) override;

 private:
  class Rehearsal;
  class Script;
  class Watch;

  [[nodiscard]] Request request(int32_t prompt_tokens);
  void post(const latency::Batch& batch);

  const EngineMeterOptions options_;
  Bell& bell_;
  const Clock& clock_;
  std::unique_ptr<Rehearsal> executor_;
  std::unique_ptr<Script> script_;
  std::unique_ptr<Watch> watch_;
  std::unique_ptr<Engine> engine_;
  EngineInputs inputs_;
  int64_t next_request_ = 1;
  uint64_t random_ = 1;
};

}  // namespace tandem
