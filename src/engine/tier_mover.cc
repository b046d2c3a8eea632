#include "engine/tier_mover.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "engine/sample_spec.h"

namespace tandem {
namespace {

// Between two tokens, so that it may enter, move or be dropped at once.
bool between_tokens(const LiveSequence& sequence) {
  const SequenceState state = sequence.state.state();
  return state == SequenceState::kParkedWaiting || state == SequenceState::kSwapped;
}

}  // namespace

TierMover::TierMover(const TierMoverOptions& options, SequenceTable& table, KvManager& kv,
                     StepExecutor& executor, CurrentStep& step, ShortfallLog& shortfalls)
    : options_(options),
      table_(table),
      kv_(kv),
      executor_(executor),
      step_(step),
      shortfalls_(shortfalls),
      fetcher_(options.fetch, table, kv, step) {}

// ---------------------------------------------------------------- what the executor reports

std::vector<LiveSequence*> TierMover::absorb(const TierEvents& events, Nanos now) {
  for (const int64_t id : events.transfers_done) {
    transfer_done(id);
  }
  for (const BlockId block : events.lost_blocks) {
    kv_.retire(Tier::kHost, block);
  }
  for (const BlockId block : events.found_blocks) {
    kv_.restore(Tier::kHost, block);
  }
  for (const SequenceId id : events.left) {
    LiveSequence* sequence = table_.find(id);
    CHECK(sequence != nullptr && sequence->leaving, "sequence {} has left without being told to",
          raw(id));
    has_left(*sequence);
  }
  std::vector<LiveSequence*> hopeless;
  for (const SequenceId id : events.failed) {
    LiveSequence* sequence = table_.find(id);
    CHECK(sequence != nullptr && sequence->in_executor,
          "sequence {} failed, but it has not entered", raw(id));
    if (!host_failed(*sequence, now)) {
      hopeless.push_back(sequence);
    }
  }
  return hopeless;
}

void TierMover::transfer_done(int64_t id) {
  if (const auto written = write_throughs_.find(id); written != write_throughs_.end()) {
    end_write_through(written->second);
    write_throughs_.erase(written);
    return;
  }
  if (fetcher_.copied(id)) {
    return;
  }
  const auto entry = transfers_.find(id);
  CHECK(entry != transfers_.end(), "transfer {} is done, but it is not in flight", id);
  entry->second->transfer = 0;
  kv_.copied(entry->second->kv);
  transfers_.erase(entry);
}

void TierMover::settle() {
  settle_transfers();
  fetcher_.settle();
}

void TierMover::arrived_on_host(LiveSequence& sequence) {
  table_.offload(sequence);
  sequence.parked_since = step_.now;
  table_.change(sequence, SequenceState::kParkedWaiting);
}

void TierMover::token_computed(LiveSequence& sequence) {
  trust_.succeeded();
  ++sequence.host_tokens;
  table_.change(sequence, SequenceState::kParkedWaiting);
}

void TierMover::has_left(LiveSequence& sequence) {
  leaving_ -= sequence.leaving ? 1 : 0;
  --in_executor_;
  sequence.leaving = false;
  sequence.in_executor = false;
  if (sequence.state.state() == SequenceState::kDropped) {
    requeue(sequence);
  }
}

bool TierMover::host_failed(LiveSequence& sequence, Nanos now) {
  has_left(sequence);
  if (sequence.state.state() != SequenceState::kParkedInFlight) {
    return true;  // it ended or moves, and its KV is whole
  }
  ++sequence.host_failures;
  trust_.failed(now);
  if (sequence.host_failures > options_.max_host_failures) {
    return false;
  }
  // What it had before this token is whole. The token's own block was not begun.
  table_.change(sequence, SequenceState::kParkedWaiting);
  kv_.shrink(sequence.kv, sequence.computed_tokens);
  sequence.comes_back = true;
  some_come_back_ = true;
  return true;
}

// Changes the authoritative tier of every sequence whose copy is complete.
void TierMover::settle_transfers() {
  std::vector<LiveSequence*> back;
  for (LiveSequence* sequence : table_.offloaded()) {
    if (!sequence->kv.moving() || sequence->in_flight() || !kv_.transfer_ready(sequence->kv)) {
      continue;
    }
    if (sequence->state.state() == SequenceState::kOffloading) {
      kv_.commit_transfer(sequence->kv);
      sequence->parked_since = step_.now;
      table_.change(*sequence,
                    sequence->decodes() ? SequenceState::kParkedWaiting : SequenceState::kSwapped);
    } else if (sequence->state.state() == SequenceState::kOnloading) {
      kv_.commit_transfer(sequence->kv);
      table_.change(*sequence,
                    sequence->decodes() ? SequenceState::kDecoding : SequenceState::kPrefilling);
      back.push_back(sequence);
    }
  }
  for (LiveSequence* sequence : back) {
    table_.bring_back(*sequence);
  }
}

// ---------------------------------------------------------------- before planning

void TierMover::prepare() {
  take_back_failed();
  fetcher_.begin();
}

void TierMover::take_back_failed() {
  if (!std::exchange(some_come_back_, false)) {
    return;
  }
  std::vector<LiveSequence*> failed;
  std::ranges::copy_if(table_.offloaded(), std::back_inserter(failed),
                       [](const LiveSequence* sequence) { return sequence->comes_back; });
  for (LiveSequence* sequence : failed) {
    sequence->comes_back = false;
    if (sequence->state.state() != SequenceState::kParkedWaiting) {
      continue;  // it ended
    }
    if (table_.places_left(options_.max_running) < 1 ||
        sequence->kv.blocks() >= kv_.free_blocks() || !begin_onload(*sequence)) {
      drop(*sequence);
      ++step_.record.preempted;
    }
  }
  if (!failed.empty()) {
    settle_transfers();
  }
}

// ---------------------------------------------------------------- offload and onload

bool TierMover::begin_transfers(const StepPlan& plan) {
  bool moved = false;
  for (const SequenceId id : plan.offload) {
    if (begin_offload(table_.at(id))) {
      moved = true;
    } else {
      shortfalls_.add("the offload", id);
    }
  }
  for (const SequenceId id : plan.onload) {
    if (begin_onload(table_.at(id))) {
      moved = true;
    } else {
      shortfalls_.add("the return", id);
    }
  }
  if (moved) {
    settle_transfers();  // those that had nothing to copy
  }
  return moved;
}

bool TierMover::begin_offload(LiveSequence& sequence) {
  auto blocks = kv_.begin_transfer(sequence.kv, sequence.computed_tokens);
  if (!blocks.has_value()) {
    return false;
  }
  table_.offload(sequence);
  begin_copy(sequence, TransferKind::kOffload, std::move(*blocks));
  return true;
}

bool TierMover::begin_onload(LiveSequence& sequence) {
  auto blocks = kv_.begin_transfer(sequence.kv, sequence.computed_tokens);
  if (!blocks.has_value()) {
    return false;
  }
  table_.change(sequence, SequenceState::kOnloading);
  end_parking(sequence);
  leave(sequence);
  begin_copy(sequence, TransferKind::kOnload, std::move(*blocks));
  return true;
}

void TierMover::begin_copy(LiveSequence& sequence, TransferKind kind,
                           std::vector<TierTransfer::Pair> blocks) {
  if (blocks.empty()) {
    kv_.copied(sequence.kv);
    return;
  }
  sequence.transfer = step_.next_transfer++;
  transfers_.emplace(sequence.transfer, &sequence);
  step_.input.transfers.push_back({sequence.transfer, kind, std::move(blocks)});
}

// The copy is a second user of the blocks on both tiers, so whatever becomes of the sequence, they
// are not reused meanwhile. Afterwards the host's blocks are cached ones without a user: an offload
// finds them, and they are evicted when the room is needed.
void TierMover::begin_write_through(const StepPlan& plan) {
  for (const SequenceId id : plan.write_through) {
    LiveSequence& sequence = table_.at(id);
    const int32_t full = sequence.computed_tokens / kv_.block_tokens();
    if (options_.prefix_caching == PrefixCaching::kOff || full <= sequence.written_blocks ||
        sequence.kv.tier() != Tier::kAccelerator || sequence.kv.moving()) {
      continue;
    }
    SequenceKv copy = kv_.fork(sequence.kv, full * kv_.block_tokens());
    auto blocks = kv_.begin_transfer(copy, full * kv_.block_tokens());
    if (!blocks.has_value()) {
      kv_.release(copy);
      continue;
    }
    sequence.written_blocks = full;
    if (blocks->empty()) {
      end_write_through(copy);
      continue;
    }
    const int64_t transfer = step_.next_transfer++;
    step_.input.transfers.push_back({transfer, TransferKind::kOffload, std::move(*blocks)});
    write_throughs_.emplace(transfer, std::move(copy));
  }
}

void TierMover::end_write_through(SequenceKv& kv) {
  kv_.copied(kv);
  kv_.abort_transfer(kv);
  kv_.release(kv);
}

// ---------------------------------------------------------------- tokens of offloaded sequences

void TierMover::move_lanes(const StepPlan& plan) {
  for (const LaneMove& move : plan.lane_moves) {
    CHECK(move.lane == 0 || move.lane == 1, "the plan puts sequence {} into lane {}",
          raw(move.sequence), move.lane);
    LiveSequence* sequence = table_.find(move.sequence);
    CHECK(sequence != nullptr && sequence->state.state() == SequenceState::kParkedInFlight,
          "the plan puts sequence {} into lane {}, but no token of it is under way",
          raw(move.sequence), move.lane);
    sequence->lane = static_cast<uint8_t>(move.lane);
    step_.input.lane_moves.push_back(move);
  }
  step_.record.lane_moves = static_cast<int32_t>(plan.lane_moves.size());
}

// Of a plan; each sequence is asked about once.
bool TierMover::is_held(LiveSequence& sequence) const {
  const bool is_named = std::ranges::binary_search(held_, sequence.id);
  sequence.held_plans = is_named ? sequence.held_plans + 1 : 0;
  const bool is_let_in = is_named && sequence.held_plans > kMaxHeldPlans;
  step_.record.let_in += is_let_in ? 1 : 0;
  return is_named && !is_let_in;
}

// Latency-sensitive sequences first, then by admission; those that the plan holds stay where they
// are.
bool TierMover::enter_tokens(const StepPlan& plan) {
  if (table_.offloaded().empty()) {
    return false;
  }
  named_lane_ = plan.mode == StepMode::kLanes ? plan.first_lane : plan.second_lane;
  std::ranges::sort(named_lane_);
  held_ = plan.hold;
  std::ranges::sort(held_);
  step_.record.let_in += static_cast<int32_t>(plan.let_in.size());
  std::array<std::vector<LiveSequence*>, kServiceClasses> waiting;  // few
  std::vector<LiveSequence*> held;
  for (LiveSequence* sequence : table_.offloaded()) {
    if (sequence->state.state() == SequenceState::kParkedWaiting) {
      (is_held(*sequence) ? held : waiting[static_cast<size_t>(sequence->service_class)])
          .push_back(sequence);
    }
  }
  bool starved = false;
  for (const std::vector<LiveSequence*>& of_class : waiting) {
    for (LiveSequence* sequence : of_class) {
      starved |= !enter(*sequence);
    }
  }
  give_up_places(held);
  // While anything is in flight, some sequence will end or move and free blocks.
  return starved && tokens_under_way() == 0 && !busy() && make_host_room();
}

// If more sequences are on the host than there are places in the executor, best-effort sequences
// that the plan holds keep none: from the next plan on the places are for the sequences that it
// names. A latency-sensitive sequence might find none again.
void TierMover::give_up_places(std::span<LiveSequence* const> held) {
  if (std::ssize(table_.offloaded()) <= executor_.limits().offloaded_sequences) {
    return;
  }
  for (LiveSequence* sequence : held) {
    if (sequence->service_class == ServiceClass::kBestEffort) {
      leave(*sequence);
    }
  }
}

bool TierMover::enter(LiveSequence& sequence) {
  if (sequence.leaving ||
      (!sequence.in_executor && in_executor_ >= executor_.limits().offloaded_sequences)) {
    return true;  // it waits for a place; places become free by themselves
  }
  const int32_t position = sequence.computed_tokens;
  CHECK(!kv_.needs_copy(sequence.kv, position),
        "sequence {} shares the block it writes on the host", raw(sequence.id));
  if (!kv_.grow(sequence.kv, position + 1)) {
    return false;
  }
  in_executor_ += sequence.in_executor ? 0 : 1;
  sequence.in_executor = true;
  sequence.held_plans = 0;
  table_.change(sequence, SequenceState::kParkedInFlight);
  OffloadedToken& token = step_.input.entering.emplace_back();
  token.sequence = sequence.id;
  const bool names_first = step_.input.mode == StepMode::kLanes;
  sequence.lane = std::ranges::binary_search(named_lane_, sequence.id) == names_first ? 0 : 1;
  token.lane = sequence.lane;
  token.token = sequence.tokens.back();
  token.position = position;
  token.host_table = sequence.kv.table();
  fill_sample(sequence, token.sample);
  return true;
}

// Every offloaded sequence waits for a host block that none of them will free: the newest one goes,
// back to the accelerator if that has room, else to be computed anew. The oldest then goes on, so
// this ends.
bool TierMover::make_host_room() {
  LiveSequence* victim = nullptr;
  for (LiveSequence* sequence : table_.offloaded()) {
    const bool better = victim == nullptr || sequence->service_class >= victim->service_class;
    if (between_tokens(*sequence) && better) {
      victim = sequence;
    }
  }
  CHECK(victim != nullptr, "the host is full of {} sequences, but none of them can go",
        table_.offloaded().size());
  if (table_.places_left(options_.max_running) > 0 && victim->kv.blocks() < kv_.free_blocks() &&
      begin_onload(*victim)) {
    settle_transfers();
    return true;
  }
  drop(*victim);
  ++step_.record.preempted;
  return true;
}

// ---------------------------------------------------------------- leaving

void TierMover::leave(LiveSequence& sequence) {
  if (!sequence.in_executor || sequence.leaving) {
    return;
  }
  sequence.leaving = true;
  ++leaving_;
  executor_.leave(sequence.id);
}

void TierMover::end_parking(LiveSequence& sequence) const {
  if (sequence.parked_since) {
    sequence.parked += step_.now - *sequence.parked_since;
    sequence.parked_since.reset();
  }
}

void TierMover::release(LiveSequence& sequence) {
  end_parking(sequence);
  leave(sequence);
}

void TierMover::drop(LiveSequence& sequence) {
  table_.change(sequence, SequenceState::kDropped);
  ++sequence.preemptions;
  release(sequence);
  if (!sequence.in_flight()) {
    requeue(sequence);
  }
}

void TierMover::requeue(LiveSequence& sequence) {
  kv_.release(sequence.kv);
  sequence.computed_tokens = 0;
  sequence.written_blocks = 0;
  sequence.fetched = LiveSequence::Fetched::kNo;
  table_.requeue(sequence);
}

// ---------------------------------------------------------------- books

void TierMover::release_all() {
  for (auto& [id, kv] : write_throughs_) {
    end_write_through(kv);
  }
  write_throughs_.clear();
  fetcher_.release_all();
}

Status TierMover::audit(std::vector<const SequenceKv*>& users) const {
  std::array<int64_t, 3> counted{};  // in the executor, leaving, moving
  const auto count = [&](const auto& sequences) {
    for (const LiveSequence* sequence : sequences) {
      counted[0] += sequence->in_executor ? 1 : 0;
      counted[1] += sequence->leaving ? 1 : 0;
      counted[2] += sequence->transfer != 0 ? 1 : 0;
    }
  };
  count(table_.running());
  count(table_.waiting());
  count(table_.offloaded());
  if (counted != std::array<int64_t, 3>{in_executor_, leaving_, std::ssize(transfers_)}) {
    return Error{
        ErrorCode::kInternal,
        fmt::format("offloaded sequences do not add up: {} in the executor, {} leaving, {} "
                    "copies; counted {}, {}, {}",
                    in_executor_, leaving_, transfers_.size(), counted[0], counted[1], counted[2]),
        ""};
  }
  for (const auto& [id, kv] : write_throughs_) {
    users.push_back(&kv);
  }
  fetcher_.audit(users);
  return {};
}

}  // namespace tandem
