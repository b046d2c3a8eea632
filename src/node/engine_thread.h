// The thread that drives one engine, and the door to it: a Frontend whose functions return at once.
// Requests go into a bounded mailbox; the thread hands them to the engine, advances it, and sleeps
// until a step completes or something comes in.
//
// If the engine has an admission, submit asks it before it answers: on the caller's thread, while
// the engine stands still, so it waits for one `advance` at most.
//
// If the engine's executor fails for good, the state turns to kFailed with the reason, before the
// clients learn about it: every accepted request ends with kError, later requests are refused.
//
// Threads: any, for every public function. The engine is touched by its thread, and by callers of
// submit that hold engine_mutex_.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "request/frontend.h"

namespace tandem {

struct EngineThreadOptions {
  // Waiting requests; more are refused. Each class has a bound of its own, so that no number of
  // best-effort requests refuses a latency-sensitive one.
  int64_t max_queue = 1024;       // latency sensitive
  int64_t max_queue_flex = 1024;  // best effort
  int32_t block_tokens = 32;
};

class EngineThread final : public Frontend {
 public:
  // Refuses requests as loading until start. `clock` must outlive it. `on_rejected` (may be empty)
  // is told the reason of each refusal of a full or draining server.
  EngineThread(ServedModel model, const EngineThreadOptions& options, const Clock& clock,
               std::function<void(const std::string& reason)> on_rejected);
  ~EngineThread() override;  // shuts down

  void start(std::unique_ptr<Engine> engine);
  // Cancels what is left, ends the thread and the engine. Completion listeners may still be
  // called until the device has ended, so the owner of both must end the device after this call and
  // before it destroys this object.
  void shutdown();
  void set_failed();  // loading went wrong: state kFailed
  // Called once, on the engine's thread, when the engine has failed and all requests have ended. To
  // be set before start.
  void set_failure_listener(std::function<void()> on_failed) { on_failed_ = std::move(on_failed); }
  void step_completed();            // the executor's completion listener: steps and tier events
  void drain();                     // refuse new requests, finish accepted ones
  void cancel_all();                // and end those too
  [[nodiscard]] bool idle() const;  // nothing accepted is unfinished

  [[nodiscard]] const ServedModel& model() const override { return model_; }
  [[nodiscard]] ServingState state() const override { return state_.load(); }
  [[nodiscard]] std::string failure() const override;
  [[nodiscard]] FrontendLoad load() const override;
  Submission submit(Request request) override;
  void cancel(RequestId request) override;
  void stop(RequestId request, int32_t choice) override;

 private:
  struct Arrivals {
    int64_t all = 0;
    int64_t best_effort = 0;  // of these
  };

  // An error if no requests are taken now, or the queue has no room for the request and its
  // followers. Needs mutex_.
  [[nodiscard]] Status check_room(const Request& request);
  [[nodiscard]] Status check_queue(const Request& request) const;
  void reject(const std::string& reason) const;
  // Needs mutex_.
  void put_in_mailbox(Arrival arrival);
  // Of arrivals that the engine's own counts do not hold yet. Needs mutex_.
  [[nodiscard]] Arrivals queued() const;
  // Posts it, or says why not. Takes engine_mutex_.
  std::optional<Refusal> admit(Arrival& arrival);
  [[nodiscard]] Status check_fit(const Request& request) const;
  void enqueue(EngineInput input);
  void run();
  void end_in_failure(const std::string& reason, EngineInputs& inputs);
  // Moves the mailbox behind `inputs`.
  void collect(EngineInputs& inputs);
  void wait(const EngineAdvance& advance);

  const ServedModel model_;
  const EngineThreadOptions options_;
  const Clock& clock_;
  const std::function<void(const std::string&)> on_rejected_;
  std::function<void()> on_failed_;  // constant from start on
  std::atomic<ServingState> state_{ServingState::kLoading};
  std::atomic<int64_t> next_request_{1};

  std::mutex engine_mutex_;  // taken before mutex_
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  EngineInputs mailbox_;         // guarded by mutex_
  Arrivals in_mailbox_;          // of mailbox_; guarded by mutex_
  Arrivals collected_;           // taken from it, not yet in the engine; guarded by mutex_
  EngineLoad engine_load_;       // guarded by mutex_
  std::string failure_;          // guarded by mutex_
  bool step_completed_ = false;  // guarded by mutex_
  bool stopping_ = false;        // guarded by mutex_
  bool cancel_all_ = false;      // guarded by mutex_

  bool has_admission_ = false;      // constant once it is ready
  bool shutdown_seen_ = false;      // engine thread only
  std::unique_ptr<Engine> engine_;  // guarded by engine_mutex_
  std::thread thread_;
};

}  // namespace tandem
