// One model that a node serves, with an engine of its own and the front end before it. Made from a
// planned model: its front end answers at once, and refuses requests until load() has loaded and
// scheduled the model and started the engine.
//
// Threads: load() and stop() on one thread; frontend(), metrics_text(), status_json() and
// config_json() from any.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/bell.h"
#include "base/clock.h"
#include "base/result.h"
#include "engine/recorder.h"
#include "latency/profiler.h"
#include "node/engine_thread.h"
#include "node/loaded_model.h"
#include "node/node_options.h"
#include "node/planned_model.h"
#include "node/scheduled_model.h"
#include "observe/engine_metrics.h"

namespace tandem {

class Instance {
 public:
  // Errors: the file of --record-out cannot be written.
  static Result<std::unique_ptr<Instance>> create(NodeOptions options, PlannedModel model,
                                                  const Clock& clock);

  // The Frontend turns from loading to ready, or to failed.
  Status load(const std::function<void(const model::LoadProgress&)>& progress,
              const latency::ProfileProgress& profile_progress);
  // Ends the engine, and gives back what it has on the device. The device may call the completion
  // listener once more, so it must end between this and the destruction.
  void stop();

  [[nodiscard]] EngineThread& frontend() { return *thread_; }
  [[nodiscard]] const PlannedModel& model() const { return model_; }
  // Another order as that of its engine's queue. Between load() and stop(). Any thread.
  [[nodiscard]] std::unique_ptr<QueueOrder> make_queue_order() const {
    return running_->scheduled.policy.step->make_queue_order();
  }
  [[nodiscard]] std::string metrics_text() const;
  // {"name":..,"policy":..,"metrics":{..}}; see observe::metrics_json.
  [[nodiscard]] std::string status_json() const;
  [[nodiscard]] std::string config_json() const;  // the effective configuration, one JSON object

 private:
  // What exists once the model runs. The binder refers to the policy, which ends last.
  struct Running {
    ScheduledModel scheduled;
    std::unique_ptr<LoadedModel> loaded;
  };

  Instance(NodeOptions options, PlannedModel model, const Clock& clock);
  Result<Running> prepare(const std::function<void(const model::LoadProgress&)>& progress,
                          const latency::ProfileProgress& profile_progress);
  Status start_recording(const latency::Profile* profile);
  std::unique_ptr<Engine> make_engine();

  // Fixed once made, but for what load() measures.
  NodeOptions options_;
  mutable std::mutex measured_mutex_;  // guards what load() writes into options_
  const Clock& clock_;
  const PlannedModel model_;
  std::unique_ptr<observe::EngineMetrics> metrics_;
  std::unique_ptr<Recorder> recorder_;  // null: nothing is recorded, or not yet
  Bell bell_;                           // while step times are measured
  std::atomic<bool> measuring_{false};
  std::optional<Running> running_;        // once load() has succeeded
  std::unique_ptr<EngineThread> thread_;  // last: its engine uses all of the above
};

}  // namespace tandem
