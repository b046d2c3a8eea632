// One engine on an emulated accelerator, driven through the phases of `tandem bench tiers`:
// residents alone, offloaded sequences beside them, and the same with the host's workers frozen.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "bench/step_signal.h"
#include "engine/engine.h"
#include "node/node.h"

namespace tandem::bench {

struct TiersLoad {
  int32_t residents = 16;  // latency-sensitive sequences that decode on the accelerator
  int32_t resident_prompt = 512;
  int32_t offloaded = 64;  // best-effort sequences that decode with their KV on the host
  int32_t offloaded_prompt = 512;
  int32_t output = 32768;  // tokens of a sequence at most; nobody may end while it is measured
};

// What one stretch of time showed.
struct TiersWindow {
  [[nodiscard]] double mean_step_seconds() const { return seconds / static_cast<double>(steps); }

  double seconds = 0;
  int64_t steps = 0;
  double step_seconds = 0;      // median, from step to step
  double over_model = 0;        // median of a step's time over what the cost model charges for it
  double modelled_seconds = 0;  // mean of that charge
  double engine_seconds = 0;    // processor time of the engine's thread, per step
  double advance_seconds = 0;   // of that, what planning, binding, pumping and launching take
  double advances = 0;          // calls of the engine for a step: it is woken so often
  // Per second.
  double visits = 0;
  double hops = 0;
  double hop_bytes_out = 0;
  double hop_bytes_back = 0;
  // Of the host's workers: bytes of K and V over the time that they worked.
  double attended_bytes = 0;  // per hop
  double host_rate = 0;
  double host_busy = 0;  // of one worker's time
  double hops_in_flight = 0;
  double overrun_share = 0;
};

class TiersRun {
 public:
  // Builds device, executor and engine; small files are not needed, a hollow device has no weights.
  static Result<std::unique_ptr<TiersRun>> create(const model::ModelConfig& shape,
                                                  const NodeOptions& options,
                                                  const TiersLoad& load);
  ~TiersRun();

  // Until all residents decode. Errors: somebody ended or does not fit.
  Status admit_residents();
  // Until all best-effort sequences are on the host and had a token there.
  Status admit_offloaded();
  Result<TiersWindow> measure(Nanos length);
  void freeze_host();
  void thaw_host();

  [[nodiscard]] const ModelOnDevice& parts() const { return parts_; }
  // Of K and V, one token and layer.
  [[nodiscard]] double token_layer_bytes() const;

 private:
  class Probe;
  struct Sums;
  TiersRun(const NodeOptions& options, const TiersLoad& load);
  void post(ServiceClass service_class, int32_t count, int32_t prompt_tokens);
  EngineActivity advance();
  template <class Done>
  Status run_until(const Done& done);
  [[nodiscard]] Sums sums() const;

  NodeOptions options_;
  const TiersLoad load_;
  SteadyClock clock_;
  StepSignal signal_;
  std::unique_ptr<Probe> probe_;
  ModelOnDevice parts_;
  std::unique_ptr<Engine> engine_;
  std::mt19937 random_{1};
  int64_t next_request_ = 1;
  Nanos advance_time_{0};
  int64_t advances_ = 0;
};

}  // namespace tandem::bench
