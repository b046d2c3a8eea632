// Moves KV between the accelerator and the host and runs the tokens of offloaded sequences:
// offload, onload, write-through, fetches of cached prefixes, entering tokens into the executor,
// and what becomes of sequences that the host failed. Internal to engine/; engine thread only.
//
// Blocks on both tiers stay with a sequence until nothing of it is in flight, also after its end.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/current_step.h"
#include "engine/host_trust.h"
#include "engine/prefix_fetcher.h"
#include "engine/sequence_table.h"
#include "engine/shortfall_log.h"
#include "kv/kv_manager.h"
#include "plan/decisions.h"

namespace tandem {

struct TierMoverOptions {
  int32_t max_running = 0;  // sequences on the accelerator
  PrefixCaching prefix_caching = PrefixCaching::kOn;
  // How often a sequence is computed anew because the host failed it, before its request fails.
  int32_t max_host_failures = 2;
  PrefixFetchOptions fetch;
};

class TierMover {
 public:
  // All references must outlive it.
  TierMover(const TierMoverOptions& options, SequenceTable& table, KvManager& kv,
            StepExecutor& executor, CurrentStep& step, ShortfallLog& shortfalls);

  // Takes in what the executor reports. Returns the sequences that the host failed too often, whose
  // requests are to fail; settle() is to follow.
  [[nodiscard]] std::vector<LiveSequence*> absorb(const TierEvents& events, Nanos now);
  // Completes the moves and fetches whose copies are done.
  void settle();
  // The prompt of a running sequence was computed, and its KV has gone straight to the host: it
  // decodes there from now on.
  void arrived_on_host(LiveSequence& sequence);
  // A token of an offloaded sequence has come back.
  void token_computed(LiveSequence& sequence);

  // Before planning: returns sequences that the host failed to the accelerator, or to the queue if
  // it is full, and begins fetches of cached prefixes for the head of the queue.
  void prepare();
  // False: nothing moves.
  bool begin_transfers(const StepPlan& plan);
  // Starts copies of full blocks; their sequences keep running.
  void begin_write_through(const StepPlan& plan);
  // Puts tokens under way into the lanes that the plan names. Any other sequence is a bug of the
  // policy.
  void move_lanes(const StepPlan& plan);
  // Enters the next token of each sequence between two tokens. True: a sequence went back into the
  // queue for want of host blocks.
  bool enter_tokens(const StepPlan& plan);

  // Gives up the KV of an admitted sequence, now or when it has left the executor; it is computed
  // anew.
  void drop(LiveSequence& sequence);
  // The sequence has ended: the executor lets go of it.
  void release(LiveSequence& sequence);

  // Copies are in flight, or sequences are leaving the executor.
  [[nodiscard]] bool busy() const {
    return !transfers_.empty() || !write_throughs_.empty() || fetcher_.busy() || leaving_ > 0;
  }
  // Tokens in the executor that will be sampled.
  [[nodiscard]] int64_t tokens_under_way() const {
    return table_.count(SequenceState::kParkedInFlight);
  }
  [[nodiscard]] const HostTrust& trust() const { return trust_; }
  // Gives back all blocks of copies in flight, before the end.
  void release_all();
  // Appends the KV that copies hold to `users`; recounts what is in flight.
  [[nodiscard]] Status audit(std::vector<const SequenceKv*>& users) const;

 private:
  // False, and nothing changed: the other tier has too few blocks.
  bool begin_offload(LiveSequence& sequence);
  bool begin_onload(LiveSequence& sequence);
  void begin_copy(LiveSequence& sequence, TransferKind kind,
                  std::vector<TierTransfer::Pair> blocks);
  void transfer_done(int64_t id);
  void end_write_through(SequenceKv& kv);
  void take_back_failed();
  void settle_transfers();
  // False: the host failed this sequence too often.
  bool host_failed(LiveSequence& sequence, Nanos now);
  [[nodiscard]] bool is_held(LiveSequence& sequence) const;
  void give_up_places(std::span<LiveSequence* const> held);
  // False: the host has no block for its next token.
  bool enter(LiveSequence& sequence);
  bool make_host_room();
  void leave(LiveSequence& sequence);
  void has_left(LiveSequence& sequence);
  void end_parking(LiveSequence& sequence) const;
  void requeue(LiveSequence& sequence);

  const TierMoverOptions options_;
  SequenceTable& table_;
  KvManager& kv_;
  StepExecutor& executor_;
  CurrentStep& step_;
  ShortfallLog& shortfalls_;
  PrefixFetcher fetcher_;
  HostTrust trust_;
  std::unordered_map<int64_t, LiveSequence*> transfers_;    // copies in flight, by id
  std::unordered_map<int64_t, SequenceKv> write_throughs_;  // the same, and their blocks
  int32_t in_executor_ = 0;      // sequences that entered and did not leave
  int32_t leaving_ = 0;          // of these, told to leave
  bool some_come_back_ = false;  // of those that the host failed
  // Of the step being planned, sorted: first_lane or, in a step without lanes, second_lane.
  std::vector<SequenceId> named_lane_;
  std::vector<SequenceId> held_;  // the same
};

}  // namespace tandem
