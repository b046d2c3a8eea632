// One engine: a model's sequences, stepped. Passive: a thread (node/) or an event loop (tests,
// replay) calls advance, which takes completions, plans the next step, launches it and returns at
// once.
//
//   advance(now): commit the finished step -> absorb what the tiers report -> absorb what came in
//   -> view -> policy -> bind -> launch -> deliver events
//
// With a host tier in the executor, sequences may be offloaded by plan. An offloaded one decodes on
// its own: after each of its tokens the next enters, as long as the host has a block for it. Its
// blocks on both tiers stay its own until nothing of it is in flight, also after its end.
//
// What comes in (arrivals, cancels, stops) is absorbed at one point only, right before planning: so
// a run is a function of its inputs and of the step before which each was absorbed, and can be
// replayed exactly (decisions.md 14). Threads: engine thread only, except make_arrival.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <memory_resource>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "engine/live_sequence.h"
#include "engine/recorder.h"
#include "kv/kv_manager.h"
#include "latency/corrected_model.h"
#include "latency/host_times.h"
#include "latency/step_shape.h"
#include "observe/engine_observer.h"
#include "plan/admission.h"
#include "plan/decisions.h"
#include "plan/step.h"
#include "request/request.h"

namespace tandem {

struct EngineConfig {
  int32_t max_running = 256;  // sequences admitted at a time
  int32_t max_model_len = 0;  // tokens of a sequence; the pool must hold one such sequence
  PrefixCaching prefix_caching = PrefixCaching::kOn;
  std::vector<TokenId> eos_token_ids;
  uint64_t seed = 0;  // of the seeds drawn for requests without one
  // How often a sequence is computed anew because the host failed it, before its request fails.
  int32_t max_host_failures = 2;
  // The way of KV from the host, by blocks. All 0: not known, and taken to be sooner than
  // computing.
  latency::AlphaBeta from_host;
};

struct EngineCancel {
  RequestId request{};
};
struct EngineStop {
  RequestId request{};
  int32_t choice = 0;
};
// A request that was not let in; only written down.
struct EngineRefusal {
  AdmissionAsk ask;
  AdmissionVerdict verdict;
};
using EngineInput = std::variant<Arrival, EngineCancel, EngineStop, EngineRefusal>;

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
};

class Engine {
 public:
  // All references must outlive the engine; `observer` and `recorder` may be null. When copies and
  // hops end is not the engine's doing: the recorder is told, so that a replay can do it again.
  Engine(const EngineConfig& config, StepExecutor& executor, StepPolicy& policy, const Clock& clock,
         observe::EngineObserver* observer, Recorder* recorder);
  ~Engine();

  // Predicts every step from now on and learns from what it took. Must outlive the engine.
  void predict_with(latency::CorrectedModel& step_times) { step_times_ = &step_times; }

  // Asks it about every request from now on; null: nobody is refused. Must outlive the engine.
  void admit_with(Admission* admission) { admission_ = admission; }
  [[nodiscard]] bool has_admission() const { return admission_ != nullptr; }

  // What submit needs computed beside the request; any thread. The request must have been
  // validated.
  static Arrival make_arrival(RequestId id, Request request, Nanos now, int32_t block_tokens);

  // Whether this request is let in. Unless it is refused it is to be posted at once; the forecast
  // is noted in it. Any thread, but not beside another function of the engine.
  struct Considered {
    AdmissionAsk ask;
    AdmissionVerdict verdict;
  };
  Considered consider(Arrival& arrival, Nanos now);

  // Queues an input; it takes effect in the next advance that plans.
  void post(EngineInput input);
  // Posts a cancel for every request that has not ended.
  void cancel_all();

  EngineActivity advance(Nanos now);

  [[nodiscard]] EngineLoad load() const;
  [[nodiscard]] const KvManager& kv() const { return kv_; }
  [[nodiscard]] int64_t next_step() const { return next_step_; }
  // Recounts blocks, users and what is in flight; O(blocks), for tests.
  [[nodiscard]] Status audit() const;

 private:
  struct StepPart {
    LiveSequence* sequence = nullptr;
    int32_t tokens = 0;
    int32_t samples = 0;
    int32_t scores = 0;
  };

  // Commit.
  void commit(StepResult& result, Nanos now);
  void commit_slice(LiveSequence& sequence, int32_t tokens);
  void commit_visitor(SampledToken& sampled, Nanos now);
  void count_computed(LiveSequence& sequence, int32_t tokens);
  void commit_samples(const StepPart& part, std::span<const SampleSpec> specs,
                      std::span<SampledToken> samples, Nanos now);
  void commit_scores(LiveSequence& sequence, const StepSlice& slice, std::span<LogprobInfo> scores);
  void emit_prompt(LiveSequence& sequence);
  void accept_token(LiveSequence& sequence, SampledToken& sampled, Nanos now);
  void make_forks(LiveSequence& parent);
  void remove_ended();

  // Absorb.
  void absorb(Nanos now);
  void absorb_one(Arrival& arrival, Nanos now);
  void absorb_one(const EngineCancel& cancel, Nanos now);
  void absorb_one(const EngineStop& stop, Nanos now);
  void absorb_one(const EngineRefusal& refusal, Nanos now);

  // What admission sees.
  [[nodiscard]] AdmissionAsk ask_of(const Arrival& arrival) const;
  [[nodiscard]] AdmissionView admission_view(Nanos now);
  void gather_admitted();
  void gather(const LiveSequence& sequence);
  [[nodiscard]] int32_t tokens_in_step(const LiveSequence& sequence) const;
  [[nodiscard]] static AdmittedPrompt prompt_of(const AdmissionAsk& ask);
  [[nodiscard]] static AdmittedPrompt prompt_of(const LiveSequence& waiting);
  void put_in_line(const AdmittedPrompt& prompt);
  void view_later();

  // What happened between the tiers.
  void absorb_tier_events(Nanos now);
  void host_failed(LiveSequence& sequence, Nanos now);
  // Those that the host failed go back to the accelerator, or into the queue where that is full.
  void take_back_failed();
  void doubt_host(Nanos now);
  [[nodiscard]] int32_t places_left() const;
  void settle_transfers();
  void leave_executor(LiveSequence& sequence);
  void forget_in_executor(LiveSequence& sequence);
  [[nodiscard]] bool tier_busy() const {
    return !transfers_.empty() || !write_throughs_.empty() || !fetches_.empty() || leaving_ > 0;
  }

  // Offload, onload, and the tokens of offloaded sequences.
  // False: nothing moves.
  bool begin_transfers(const StepPlan& plan);
  // False, and nothing changed: the other tier has too few blocks.
  bool begin_offload(LiveSequence& sequence);
  bool begin_onload(LiveSequence& sequence);
  void begin_copy(LiveSequence& sequence, TransferKind kind,
                  std::vector<TierTransfer::Pair> blocks);
  // Copies of full blocks whose sequence goes on meanwhile.
  void begin_write_through(const StepPlan& plan);
  void end_write_through(SequenceKv& kv);
  // Prefixes that the host holds, of those at the head of the queue, come back before these are
  // shown to the policy. At most once in a stay in the queue.
  void begin_fetches();
  void begin_fetch(LiveSequence& sequence, const HostPrefix& prefix);
  [[nodiscard]] bool fetch_pays(const LiveSequence& sequence, const HostPrefix& prefix) const;
  [[nodiscard]] int64_t blocks_promised() const;
  bool fetch_copied(int64_t transfer);
  void settle_fetches();
  // True: a sequence went back into the queue for want of host blocks.
  bool enter_tokens(const StepPlan& plan);
  bool enter(LiveSequence& sequence);
  bool make_host_room();
  void end_parking(LiveSequence& sequence) const;
  // Gives up the KV of an admitted sequence, now or when it has left the executor.
  void drop(LiveSequence& sequence);
  void requeue(LiveSequence& sequence);

  // Plan and launch.
  EngineActivity plan_and_launch(Nanos now);
  [[nodiscard]] EngineActivity running_step() const {
    return input_.slices.empty() ? EngineActivity::kVisitorsOnly : EngineActivity::kStepRunning;
  }
  SystemView make_view(Nanos now);
  void view_waiting();
  void view_head_of_queue();
  void view_offloaded(SystemView& view);
  [[nodiscard]] Status audit_views() const;
  void enqueue(LiveSequence& sequence);
  // What is filled in place is written once: a record built elsewhere and copied is read back while
  // its writes are still on their way to the cache.
  void show(const LiveSequence& sequence, SequenceView& view) const;
  void show_waiting(const LiveSequence& sequence, SequenceView& view) const;
  void apply_preemptions(const StepPlan& plan);
  void apply_admissions(const StepPlan& plan, Nanos now);
  // The running sequence of that id, looked for at `place` of running_ first; `place` goes behind
  // it. Null: it does not run.
  LiveSequence* running_sequence(SequenceId id, size_t& place);
  void bind(const StepPlan& plan);
  [[nodiscard]] bool has_rows(const LiveSequence& sequence, int32_t tokens) const;
  bool make_writable(LiveSequence& sequence, int32_t tokens);
  // A part of the plan finds no room: it is left out and counted, and nothing else suffers.
  void put_off(std::string_view what, SequenceId sequence);
  void bind_slice(LiveSequence& sequence, int32_t tokens, StepSlice& slice);
  std::span<const SampleSpec> bind_samples(const LiveSequence& sequence);
  static void fill_sample(const LiveSequence& sequence, SampleSpec& spec);
  void fail_unschedulable(Nanos now);

  // Rows of visitors in the step in flight.
  [[nodiscard]] int64_t step_visits() const {
    return executor_.tier_counts().visits - visits_before_;
  }
  // Compares the finished step with what was believed of it.
  void learn_from_step(const StepResult& result);

  // Events.
  // A new event of this sequence's request, to be filled in at once; null where nobody listens.
  TokenEvent* emit(const LiveSequence& sequence, TokenEvent::Kind kind, int32_t choice);
  std::vector<TokenEvent>& events_of(const LiveSequence& sequence);
  void emit_finish(const LiveSequence& sequence, int32_t choice, FinishReason reason,
                   std::string error);
  void end(LiveSequence& sequence, FinishReason reason, Nanos now, std::string error = {});
  void record_end(const LiveSequence& sequence, FinishReason reason, Nanos now);
  [[nodiscard]] std::unique_ptr<ServiceReport> make_report(const LiveSequence& sequence) const;
  void deliver();
  void report_gauges();

  EngineConfig config_;
  StepExecutor& executor_;
  StepPolicy& policy_;
  const Clock& clock_;
  Admission* admission_ = nullptr;
  observe::EngineObserver* observer_;
  Recorder* recorder_;
  KvManager kv_;
  latency::CorrectedModel* step_times_ = nullptr;  // null: steps are not predicted

  // Sequences and requests lie side by side in a few pieces of memory: every step goes through all
  // of them, and strewn over the heap each would cost it a page walk.
  std::pmr::unsynchronized_pool_resource memory_;
  std::pmr::unordered_map<SequenceId, LiveSequence> sequences_{&memory_};
  std::unordered_map<RequestId, std::vector<SequenceId>> by_request_;
  std::vector<LiveSequence*> running_;  // oldest admission first
  std::deque<LiveSequence*> waiting_;   // in the policy's order
  // Whose KV is on the host or moves, ended ones with something in flight and dropped ones that
  // have not left included; oldest admission first.
  std::vector<LiveSequence*> offloaded_;
  std::unordered_map<int64_t, LiveSequence*> transfers_;    // copies under way
  std::unordered_map<int64_t, SequenceKv> write_throughs_;  // copies under way, and their blocks
  struct Fetch {
    int64_t transfer = 0;  // 0: what it copies itself is there
    SequenceId sequence{};
    PrefixFetch prefix;
  };
  std::vector<Fetch> fetches_;
  int64_t ended_ = 0;            // sequences that have ended and are not removed yet
  int32_t in_executor_ = 0;      // sequences that entered and did not leave
  int32_t leaving_ = 0;          // of these, told to leave
  int32_t under_way_ = 0;        // tokens in the executor that will be sampled
  bool some_come_back_ = false;  // of those that the host failed
  // A host that fails again and again is left alone for a while, then tried again.
  int32_t failures_in_a_row_ = 0;  // of tokens, since one was computed
  int32_t suspensions_ = 0;        // in a row
  Nanos suspended_until_{0};       // nothing is offloaded before
  std::vector<EngineInput> inbox_;
  int64_t next_sequence_ = 1;
  int64_t next_step_ = 1;
  int64_t next_admission_ = 1;
  int64_t next_transfer_ = 1;
  uint64_t put_off_ = 0;  // parts of plans, since the start
  Nanos now_{0};          // of the advance under way
  std::mt19937_64 seeds_;

  // The step in flight, and memory reused from step to step.
  bool in_flight_ = false;
  Nanos launched_{0};
  latency::StepShape shape_;   // of the step in flight; visitors are known when it is done
  int64_t visits_before_ = 0;  // of all steps, when it was launched
  int64_t ready_before_ = 0;   // TierCounts::ready at the last planning
  StepInput input_;
  StepResult result_;
  std::vector<StepPart> step_parts_;      // by slice
  std::vector<SampleSpec> step_samples_;  // of all slices, in their order
  std::vector<SequenceId> first_lane_;    // of the step being planned, sorted
  std::vector<SequenceView> running_views_;
  std::vector<SequenceView> waiting_views_;
  std::vector<SequenceView> offloaded_views_;
  std::vector<AdmittedPrompt> later_views_;

  // What admission was shown last, as long as the engine has not gone on.
  struct Admitted {
    bool current = false;
    AdmissionView view;
    std::vector<AdmittedDecode> decodes;
    std::vector<AdmittedPrompt> prompts;
    std::vector<std::pair<SequenceId, int32_t>> chunks;  // of prompts in the step in flight
  };
  Admitted admitted_;
  observe::StepRecord record_;  // of the step in flight
  std::vector<std::pair<std::shared_ptr<TokenSink>, std::vector<TokenEvent>>> events_;
  size_t usual_events_ = 0;  // that the first sink got in the last step
};

}  // namespace tandem
