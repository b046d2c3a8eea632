// One engine on an emulated accelerator or a GPU, driven through the phases of `tandem bench
// tiers`: residents alone, offloaded sequences beside them, and the same with the host's workers
// frozen.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/bell.h"
#include "base/clock.h"
#include "base/result.h"
#include "bench/tiers_bounds.h"
#include "engine/engine.h"
#include "node/loaded_model.h"
#include "node/planned_model.h"
#include "node/scheduled_model.h"

namespace tandem::bench {

struct TiersLoad {
  int32_t residents = 16;  // latency-sensitive sequences that decode on the accelerator
  int32_t resident_prompt = 512;
  int32_t offloaded = 64;  // best-effort sequences that decode with their KV on the host
  int32_t offloaded_prompt = 512;
  int32_t output = 32768;  // tokens of a sequence at most; none may end while it is measured
};

class TiersRun {
 public:
  // Builds device, executor and engine. Without a model in `options` no files are needed: a hollow
  // device has no weights.
  static Result<std::unique_ptr<TiersRun>> create(const model::ModelConfig& shape,
                                                  const NodeOptions& options,
                                                  const TiersLoad& load);
  ~TiersRun();

  // Until all residents decode. Errors: somebody ended or does not fit.
  Status admit_residents();
  // Until all best-effort sequences are on the host and had a token there.
  Status admit_offloaded();
  // Cancels all best-effort sequences, and waits until the residents are alone.
  Status dismiss_offloaded();
  // The length of all windows that are to come: measure() divides the steps that sequences still
  // have room for among them.
  void expect_windows(Nanos length) { to_come_ = length; }
  // Ends after `length`, or after the window's part of the steps that are left: no sequence ends
  // while it is measured.
  Result<TiersWindow> measure(Nanos length);
  void freeze_host();
  void thaw_host();

  [[nodiscard]] const PlannedModel& model() const { return planned_->model; }
  [[nodiscard]] std::string config() const;  // effective, one JSON object
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
  Bell bell_;
  std::unique_ptr<Probe> probe_;
  // The first three are null until create() has made them.
  std::unique_ptr<SoleModel> planned_;
  std::unique_ptr<LoadedModel> loaded_;
  ScheduledModel scheduled_;
  std::unique_ptr<Engine> engine_;
  EngineInputs inputs_;
  std::mt19937 random_{1};
  int64_t next_request_ = 1;
  int64_t dismissed_ = 0;  // number of requests that may end
  Nanos advance_time_{0};
  int64_t advances_ = 0;
  Nanos to_come_{0};
};

}  // namespace tandem::bench
