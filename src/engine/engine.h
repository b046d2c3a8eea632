// One engine: a model's sequences, computed step by step. Passive: a thread (node/) or an event
// loop (tests, replay) calls advance, which takes completions, plans the next step, launches it and
// returns at once.
//
//   advance(now, inputs): commit the finished step -> take in what the tiers report -> take in the
//   inputs -> view -> policy -> assemble -> launch -> deliver events
//
// The work is done by parts with one duty each: SequenceTable owns the sequences, the queue and
// their states; StepAssembler turns a plan into a step and StepCommitter takes its result;
// TierMover moves KV between the tiers; ViewBuilder shows policies what there is; AdmissionBook
// asks admission; SequenceFinisher and EventOutbox tell clients. Engine owns the parts and the
// order of their work.
//
// Inputs (arrivals, cancels, stops) are taken in at one point only, right before planning: so a run
// is a function of its inputs and of the step before which each was taken in, and can be replayed
// exactly. Threads: engine thread only, except make_arrival and, while the engine stands still,
// consider.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/admission_book.h"
#include "engine/current_step.h"
#include "engine/engine_input.h"
#include "engine/event_outbox.h"
#include "engine/recorder.h"
#include "engine/sequence_finisher.h"
#include "engine/sequence_table.h"
#include "engine/shortfall_log.h"
#include "engine/step_assembler.h"
#include "engine/step_committer.h"
#include "engine/tier_mover.h"
#include "engine/view_builder.h"
#include "kv/kv_manager.h"
#include "latency/corrected_host.h"
#include "latency/corrected_model.h"
#include "latency/host_times.h"
#include "observe/engine_observer.h"
#include "plan/admission.h"
#include "plan/decisions.h"
#include "plan/step.h"

namespace tandem {

struct EngineConfig {
  int32_t max_running = 256;  // sequences admitted at a time
  int32_t max_model_len = 0;  // tokens of a sequence; the pool must hold one such sequence
  PrefixCaching prefix_caching = PrefixCaching::kOn;
  std::vector<TokenId> eos_token_ids;
  uint64_t seed = 0;  // of the seeds drawn for requests without one
  // How often a sequence is computed anew because the host failed it, before its request fails.
  int32_t max_host_failures = 2;
  // Time of a copy of KV from the host, by blocks. All 0: not known, and assumed shorter than
  // computing.
  latency::AlphaBeta from_host;
};

// What an engine works with. All must outlive it.
struct EngineParts {
  StepExecutor& executor;
  StepPolicy& policy;
  const Clock& clock;
  observe::EngineObserver& observer = observe::no_observer();
  // The engine does not control when copies and hops complete: it reports this to the recorder, so
  // that a replay can repeat it.
  Recorder& recorder = no_recorder();
  // Predicts every step and learns from it; null: steps are not predicted.
  latency::CorrectedModel* step_times = nullptr;
  // Learns from the work of the host's workers; null: the host's times are not known.
  latency::CorrectedHost* host_times = nullptr;
  // Is asked about every latency-sensitive request; null: all are accepted.
  Admission* admission = nullptr;
};

struct EngineLoad {
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t waiting_best_effort = 0;  // of these
};

enum class EngineActivity : uint8_t {
  kIdle,          // nothing to do until new input
  kStepRunning,   // call again when the executor has completed
  kVisitorsOnly,  // the same, for a step that waits for hops: new input ends its waiting
  kTierBusy,      // no step runs, copies or hops do: call again when the executor reports something
                  // or new input comes
  kFailed,        // the executor has failed for good: call end_all
};

struct EngineAdvance {
  EngineActivity activity = EngineActivity::kIdle;
  // Call again then at the latest, although nothing was reported; Nanos::max(): no need to.
  Nanos next_wakeup = Nanos::max();
};

class Engine {
 public:
  Engine(const EngineConfig& config, const EngineParts& parts);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // What an input needs computed beside the request; any thread. The request must have been
  // validated.
  static Arrival make_arrival(RequestId id, Request request, Nanos now, int32_t block_tokens);

  // Whether admission accepts this request; the forecast is noted in it. An accepted request must
  // be among the inputs of the next advance.
  AdmissionBook::Answer consider(Arrival& arrival, Nanos now) {
    return admission_book_.consider(arrival, now);
  }
  [[nodiscard]] bool has_admission() const { return parts_.admission != nullptr; }

  // Goes on as far as possible without waiting. Takes all of `inputs`, unless a step is still
  // running: then they are left for a later call.
  EngineAdvance advance(Nanos now, EngineInputs& inputs);
  // Null while the executor works. Then nothing is computed any more: advance takes no inputs and
  // returns kFailed.
  [[nodiscard]] const Error* failure() const { return parts_.executor.failure(); }
  // Ends every request, in `inputs` too, with kError and this reason. For an executor that
  // has failed; only load() and the destructor may follow, or the same call for later inputs.
  void end_all(const std::string& reason, EngineInputs& inputs);
  // Commits the step in flight if it has finished, and launches nothing. True: no step is in
  // flight. Admission goes by what it knew before until the next advance, which takes in the
  // requests that it has accepted. The result of a failed executor is dropped.
  bool commit(Nanos now);

  [[nodiscard]] EngineLoad load() const;
  // Requests that have not ended, by id.
  [[nodiscard]] std::vector<RequestId> requests() const { return table_.requests(); }
  [[nodiscard]] const KvManager& kv() const { return kv_; }
  // Whether the KV of this sequence lies on the host; not if the sequence is unknown.
  [[nodiscard]] bool is_on_host(SequenceId id) const;
  // Recounts blocks, users and what is in flight; O(blocks), for tests.
  [[nodiscard]] Status audit() const;

 private:
  bool finish_step();
  void absorb_tier_events();
  void absorb(EngineInputs& inputs);
  void absorb_one(Arrival& arrival);
  void absorb_one(const EngineCancel& cancel);
  void absorb_one(const EngineStop& stop);
  EngineActivity plan_and_launch();
  void fail_unschedulable();
  void report(Nanos work_began);

  const EngineConfig config_;
  const EngineParts parts_;
  KvManager kv_;
  CurrentStep step_;
  SequenceTable table_;
  EventOutbox outbox_;
  Nanos delivery_{0};  // time of deliveries, not yet counted with a step
  ShortfallLog shortfalls_;
  TierMover mover_;
  SequenceFinisher finisher_;
  StepAssembler assembler_;
  StepCommitter committer_;
  ViewBuilder views_;
  AdmissionBook admission_book_;
  std::mt19937_64 seeds_;
};

// Appends a cancel for every request of `engine` and of `inputs` that has not ended, by id.
void cancel_all(const Engine& engine, EngineInputs& inputs);

}  // namespace tandem
