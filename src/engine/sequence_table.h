// All sequences of an engine: their memory, the queue, the list of those that run, the list of
// those on the host, and every change of state. Internal to engine/; engine thread only.
//
// A sequence is in exactly one of three lists: waiting (queued or dropped), running (its KV is on
// the accelerator), offloaded (its KV is on the host or moves). A sequence that has ended stays in
// its list until nothing of it is in flight (remove_ended).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/live_sequence.h"
#include "engine/waiting_queue.h"
#include "kv/kv_manager.h"
#include "plan/decisions.h"

namespace tandem {

class SequenceTable {
 public:
  explicit SequenceTable(std::unique_ptr<QueueOrder> order) : waiting_(std::move(order)) {}

  // The state that the sequences of a new request will share.
  std::shared_ptr<RequestState> new_request();
  // Adds the first sequence of a request to the queue. Its other choices get their ids now and
  // their sequences in make_forks.
  LiveSequence& add(std::shared_ptr<RequestState> owner, std::vector<BlockHash> prompt_hashes);
  // Adds the other choices of `parent`, which has computed its prompt, right behind it. They share
  // its KV.
  void make_forks(LiveSequence& parent, KvManager& kv);

  // Null: it is not known (any more).
  [[nodiscard]] LiveSequence* find(SequenceId id);
  [[nodiscard]] const LiveSequence* find(SequenceId id) const;
  [[nodiscard]] LiveSequence& at(SequenceId id) { return sequences_.at(id); }
  // The sequences of a request that have not been removed; empty: it is not known.
  [[nodiscard]] std::span<const SequenceId> of_request(RequestId id) const;
  // Requests that have a sequence, by id.
  [[nodiscard]] std::vector<RequestId> requests() const;
  // The running sequence with this id, looked up at `place` of running() first; `place` moves
  // behind it. Null: it does not run.
  [[nodiscard]] LiveSequence* running_at(SequenceId id, size_t& place) const;

  [[nodiscard]] const std::vector<LiveSequence*>& running() const { return running_; }
  [[nodiscard]] const WaitingQueue& waiting() const { return waiting_; }
  // The sequence got an output token.
  void count_output(const LiveSequence& sequence) { waiting_.count_served(sequence, 0, 1); }
  [[nodiscard]] const std::vector<LiveSequence*>& offloaded() const { return offloaded_; }
  [[nodiscard]] int64_t size() const { return std::ssize(sequences_); }
  [[nodiscard]] int64_t count(SequenceState state) const {
    return counts_[static_cast<size_t>(state)];
  }
  // Free places for sequences on the accelerator, of `max_running`; a prompt takes the places of
  // all choices that it becomes.
  [[nodiscard]] int32_t places_left(int32_t max_running) const;

  // The only way to change a sequence's state, so that count() is right.
  void change(LiveSequence& sequence, SequenceState state);
  void admit(LiveSequence& sequence);    // waiting -> running
  void offload(LiveSequence& sequence);  // running -> offloaded, kOffloading
  // offloaded -> running, at its place by admission
  void bring_back(LiveSequence& sequence);
  // Running or offloaded, without blocks -> its place in the queue, so that no younger one
  // overtakes.
  void requeue(LiveSequence& sequence);

  // Removes the sequences that have ended and have nothing in flight, and frees their blocks.
  void remove_ended(KvManager& kv);
  // Frees the blocks of all sequences, before the end.
  void release_all(KvManager& kv);
  // Appends the KV of every sequence to `users`; recounts states and lists.
  [[nodiscard]] Status audit(std::vector<const SequenceKv*>& users) const;

 private:
  LiveSequence& create(SequenceId id);

  // Sequences and requests lie side by side in a few pieces of memory: every step visits all of
  // them, and scattered over the heap each would cost it a page walk.
  std::pmr::unsynchronized_pool_resource memory_;
  std::pmr::unordered_map<SequenceId, LiveSequence> sequences_{&memory_};
  std::unordered_map<RequestId, std::vector<SequenceId>> by_request_;
  std::vector<LiveSequence*> running_;  // oldest admission first
  WaitingQueue waiting_;
  std::vector<LiveSequence*> ended_waiting_;  // of waiting_, in the order in which they ended
  std::vector<LiveSequence*> offloaded_;      // oldest admission first
  std::array<int64_t, kSequenceStates> counts_{};
  int64_t next_sequence_ = 1;
  int64_t next_admission_ = 1;
};

}  // namespace tandem
