// The hops of offloaded tokens: who waits at which stage, what each hop holds on its way (ring row,
// hop row, residual slot), and what may join next. Sans-I/O: owns no memory, knows no device,
// thread or clock; its user feeds it completions and does what it says. (OmniServe 3.2, with late
// binding.)
//
// A model of L layers has stages 0 .. last_stage = L. A token enters at stage 0, visits every stage
// once, has a hop (host attention of one layer) between each two, and ends with its visit of the
// last stage. At most one hop is in flight per sequence. A hop row goes through
//   exiting -> due -> working -> done -> returning -> ready -> consumed -> free
// and is free only when nothing can touch it any more: copies are complete, the group that reads it
// is done, and every attempt that was handed to a worker has answered (a worker that hangs may
// still write its result) or was given up for lost, which keeps the row until it does answer. Where
// no row is free a hop takes over the row that it consumes, which is safe because its copies come
// after that group; so one row is enough to make progress.
//
// Threads: engine thread only. Costs: O(rows named), O(1) to ask; overdue, audit, strand_check and
// late answers look at all rows. Allocates nothing after construction but in the caller's vectors.
// Errors: broken contracts are bugs (CHECK); late, double and outdated answers are not. It has more
// than 25 public methods because each kind of completion has one, and all change the same rows.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "piggyback/core/hop_types.h"
#include "piggyback/core/row_set.h"

namespace tandem::piggyback {

class HopCore {
 public:
  explicit HopCore(const HopLimits& limits);

  // -- tokens
  // The sequence's next token waits at stage 0 of `lane` from now on. Takes a slot when the
  // sequence has none. False: no slot is free, nothing changed. Its token before must have visited
  // the last stage, and a sequence that left must have been reported.
  [[nodiscard]] bool enter(SequenceId sequence, TokenId token, int32_t position, Nanos now,
                           int32_t lane = 0);
  // The sequence's token under way is in `lane` from now on, whatever its stage. A waiting token
  // goes to the end of that lane's queue at its stage; a token whose hop is in flight arrives in
  // the lane. False: no token of it is under way, and nothing changed. O(1) beside finding the
  // sequence, O(log n).
  [[nodiscard]] bool move_lane(SequenceId sequence, int32_t lane);
  // No more visits; what waits is dropped. It is reported by take_left once nothing of it is in
  // flight: until then its host blocks may be read and appended to. Also for one that has failed
  // and is not reported yet. False: it is not here, or was told before.
  bool leave(SequenceId sequence);
  // Appends the sequences that are gone since. Their slots are free.
  void take_left(std::vector<SequenceId>& sequences);
  // The same for sequences that left by themselves because the attempts of a hop were used up. Each
  // is reported once, here or by take_left, and not while an attempt has not answered.
  void take_failed(std::vector<SequenceId>& sequences);

  // -- bind
  [[nodiscard]] int32_t ready(int32_t stage) const;  // of all lanes
  [[nodiscard]] int32_t ready(int32_t stage, int32_t lane) const {
    return queue(stage, lane).count;
  }
  // How many are on their way to the stage: their hop from the stage before is in flight.
  [[nodiscard]] int32_t coming(int32_t stage) const;
  [[nodiscard]] int32_t coming(int32_t stage, int32_t lane) const {
    return queue(stage, lane).coming;
  }
  // The same in all lanes, without hops that began in the group `ticket` or a later one. Of these
  // groups one at most may have begun hops to the stage.
  [[nodiscard]] int32_t coming_from_before(int32_t stage, int64_t ticket) const;
  // The stage that the sequence's token visits next: it waits there, or its hop to it is in flight.
  // -1: no token of it is under way. O(log n).
  [[nodiscard]] int32_t next_stage(SequenceId sequence) const;
  // How many could be bound there now, were they ready: an upper bound by ring and hop rows.
  [[nodiscard]] int32_t credits(int32_t stage) const;
  // Appends at most `limit` visits, lane after lane and in each those first that joined its queue
  // first, and reserves their routes. `ticket` names the group that will run them; tickets never
  // fall.
  void bind(int32_t stage, int32_t limit, int64_t ticket, std::vector<Visit>& visits);
  // The same of one lane.
  void bind_lane(int32_t stage, int32_t lane, int32_t limit, int64_t ticket,
                 std::vector<Visit>& visits);
  // Appends the runs that bring these visits, in the order bound, from the ring to the outbox.
  static void exit_runs(std::span<const Visit> visits, std::vector<ExitRun>& runs);

  // -- completions
  // The groups up to `ticket` are complete: what they consumed is free.
  void group_done(int64_t ticket);
  // The copies of these visits are complete, in the order bound: ring rows free, tasks due.
  void exits_copied(std::span<const HopId> hops);
  // The next task to hand to a worker; false: none is due.
  [[nodiscard]] bool next_task(Nanos now, HopTask& task);
  // A worker's answer. True: the result is wanted and may travel. False: it came late, twice, or
  // for a sequence that left, and is only counted as back.
  [[nodiscard]] bool task_done(HopId hop, int32_t attempt);
  // The worker could not do it. True: the hop is due again with the next attempt, or, when attempts
  // are used up, its sequence has failed. False: as above.
  [[nodiscard]] bool task_failed(HopId hop, int32_t attempt);
  // Appends results that may travel now; the caller copies them, then calls returns_copied.
  void take_returns(std::vector<RowRun>& runs);
  void returns_copied(std::span<const RowRun> runs, Nanos now);

  // -- watching
  // Appends the hops that were handed out `age` or longer ago and have not been answered.
  void overdue(Nanos now, Nanos age, std::vector<HopTask>& hops) const;
  // The same for attempts whose answer is of no use any more, but holds up a row: of sequences that
  // left, or of hops that another attempt has answered.
  void stragglers(Nanos now, Nanos age, std::vector<HopTask>& attempts) const;
  // The hop is due again with the next attempt; the earlier one may still answer, and the first
  // good answer counts. True: due. False: attempts are used up and the sequence failed, or it has
  // been answered meanwhile.
  bool retry(HopId hop);
  // Gives up the attempts that stragglers would name for an age of `age`: their rows stay out of
  // use until they answer, but their sequences need not wait for them. Appends each:
  // whatever lies where it may still write must not be given to anybody else.
  void lose(Nanos now, Nanos age, std::vector<HopTask>& attempts);
  // Where every hop row waits for workers that do not answer, nothing can move any more: then fails
  // the sequences that have waited for `age` or longer. Elsewhere does nothing.
  void strand_check(Nanos now, Nanos age);

  // -- state
  [[nodiscard]] const HopLimits& limits() const { return limits_; }
  // Hops between bind and ready, also of sequences that leave.
  [[nodiscard]] int32_t in_flight() const {
    return rows_in(RowState::kExiting) + rows_in(RowState::kDue) + rows_in(RowState::kWorking) +
           rows_in(RowState::kDone) + rows_in(RowState::kReturning);
  }
  // Recounts everything from the rows and slots; an error says what does not add up.
  [[nodiscard]] Status audit() const;

 private:
  friend class HopCoreView;  // tests/support

  enum class RowState : uint8_t {
    kFree,
    kExiting,    // bound; its copy to the outbox is not complete
    kDue,        // waits to be handed to a worker
    kWorking,    // a worker has it
    kDone,       // the result waits to travel
    kReturning,  // its copy to the device is not complete
    kReady,      // the result can be consumed
    kConsumed,   // the group that reads it is not complete
    kSpent,      // of no more use, but an attempt has not answered
    kLost,       // the same, and nobody waits for it: the slot is not this row's any more
  };
  static constexpr size_t kRowStates = 10;
  enum class SlotState : uint8_t { kFree, kIdle, kReady, kOut, kLeaving };

  // A row and a slot each fit into a cache line: every hop goes through several of their fields
  // half a dozen times.
  struct alignas(64) Row {
    RowState state = RowState::kFree;
    int32_t slot = -1;
    uint32_t generation = 0;
    int32_t layer = 0;
    int32_t position = 0;
    int32_t ring_row = -1;
    int32_t attempt = 0;      // the one due or handed out last
    uint32_t unanswered = 0;  // bit a: attempt a was handed out and has not answered
    Nanos handed_out{0};
    int32_t previous_due = -1;
    int32_t next_due = -1;
    int64_t ticket = 0;  // names the group that began the hop
  };

  struct alignas(64) Slot {
    SlotState state = SlotState::kFree;
    bool failed = false;  // leaves by itself
    int8_t lane = 0;
    uint32_t generation = 0;
    SequenceId sequence{};
    int32_t row = -1;       // of the hop that is out, or of the result that waits
    int32_t rows_held = 0;  // not free and of this slot
    int32_t stage = 0;      // where it waits, or where its hop began
    TokenId token = 0;
    int32_t position = 0;
    Nanos ready_since{0};
    int64_t turn = 0;       // in its queue: rises from its front to its end
    int32_t previous = -1;  // in the stage's queue
    int32_t next = -1;
  };

  static_assert(sizeof(Row) == 64 && sizeof(Slot) == 64);

  struct Queue {
    int32_t first = -1;
    int32_t last = -1;
    int32_t count = 0;
    int32_t coming = 0;         // hops on their way here; not in the list
    int64_t newest_ticket = 0;  // names the last group that began hops to this stage
    int32_t newest = 0;         // hops of that group that are still on their way
  };

  struct Consumed {
    int64_t ticket = 0;
    int32_t row = -1;
  };

  struct Named {
    SequenceId sequence{};
    int32_t slot = -1;
  };

  [[nodiscard]] Row& row_at(int32_t row) { return rows_[static_cast<size_t>(row)]; }
  [[nodiscard]] const Row& row_at(int32_t row) const { return rows_[static_cast<size_t>(row)]; }
  [[nodiscard]] Slot& slot_at(int32_t slot) { return slots_[static_cast<size_t>(slot)]; }
  [[nodiscard]] const Slot& slot_at(int32_t slot) const {
    return slots_[static_cast<size_t>(slot)];
  }
  [[nodiscard]] const Queue& queue(int32_t stage, int32_t lane) const;
  [[nodiscard]] Queue& queue_of(int32_t stage, int32_t lane) {
    return queues_[static_cast<size_t>(stage * kLanes + lane)];
  }
  [[nodiscard]] int32_t find_slot(SequenceId sequence) const;
  [[nodiscard]] int32_t find_row(HopId hop) const;
  [[nodiscard]] bool leaving(const Row& row) const {
    return slot_at(row.slot).state == SlotState::kLeaving;
  }
  [[nodiscard]] HopTask task_of(int32_t row) const;
  void append_unanswered(int32_t row, std::vector<HopTask>& attempts) const;
  [[nodiscard]] bool can_move(const Row& row) const;
  [[nodiscard]] bool answered(HopId hop, int32_t attempt, int32_t& row);

  static bool is_out(RowState state) {
    return state >= RowState::kExiting && state <= RowState::kReturning;
  }
  [[nodiscard]] int32_t rows_in(RowState state) const {
    return rows_in_[static_cast<size_t>(state)];
  }
  void set_state(Row& row, RowState state) {
    --rows_in_[static_cast<size_t>(row.state)];
    ++rows_in_[static_cast<size_t>(state)];
    row.state = state;
  }
  int32_t take_slot(SequenceId sequence);
  void begin_coming(const Slot& slot);
  void end_coming(const Slot& slot);
  void join_queue(int32_t slot);
  void become_ready(int32_t slot, int32_t stage, Nanos now);
  void leave_queue(int32_t slot);
  void push_due(int32_t row, bool first);
  void remove_due(int32_t row);
  void bind_lanes(int32_t stage, std::span<const int32_t> lanes, int32_t limit, int64_t ticket,
                  std::vector<Visit>& visits);
  Visit visit(int32_t slot, int32_t hop_row, int64_t ticket);
  void leave_slot(int32_t slot);
  void leave_row(int32_t row);
  void give_up(int32_t slot);
  bool try_again(int32_t row);
  void release_row(int32_t row);
  void release_slot(int32_t slot);

  [[nodiscard]] Status audit_rows() const;
  [[nodiscard]] Status audit_row(int32_t row) const;
  [[nodiscard]] Status audit_slots() const;
  [[nodiscard]] Status audit_slot(int32_t slot) const;
  [[nodiscard]] Status audit_queue(int32_t stage, int32_t lane) const;
  [[nodiscard]] Status audit_queues() const;
  [[nodiscard]] Status audit_ring() const;

  HopLimits limits_;
  std::vector<Slot> slots_;
  std::vector<Row> rows_;
  std::vector<Queue> queues_;        // by stage and lane, in the order in which they joined
  std::vector<int32_t> free_slots_;  // a stack
  std::vector<Named> named_;         // by sequence; one per slot in use
  std::vector<Consumed> consumed_;   // a circle of hop_rows entries, by ticket
  int32_t consumed_first_ = 0;
  int32_t consumed_count_ = 0;
  RowAllocator allocator_;
  ExitRing ring_;
  RowSet done_;                                // rows in state done
  Queue due_;                                  // rows
  int64_t ticket_ = 0;                         // the highest so far
  int64_t turn_ = 0;                           // the same
  std::array<int32_t, kRowStates> rows_in_{};  // each state
  int32_t tokens_ = 0;  // between entry and the bind of their last visit, without those that left
  std::vector<SequenceId> left_;
  std::vector<SequenceId> failed_;
};

}  // namespace tandem::piggyback
