// The part of Engine that deals with the host tier: offload and onload, the tokens of offloaded
// sequences, and what the executor reports of them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "engine/engine.h"
#include "engine/prefetch.h"

namespace tandem {
namespace {

bool admitted_before(const LiveSequence* a, const LiveSequence* b) {
  return std::pair(a->admission, a->choice) < std::pair(b->admission, b->choice);
}

void insert_by_admission(std::vector<LiveSequence*>& list, LiveSequence& sequence) {
  list.insert(std::ranges::upper_bound(list, &sequence, admitted_before), &sequence);
}

// Between two tokens, so that it may enter, move or be dropped at once.
bool between_tokens(const LiveSequence& sequence) {
  const SequenceState state = sequence.state.state();
  return state == SequenceState::kParkedWaiting || state == SequenceState::kSwapped;
}

bool moves(SequenceState state) {
  return state == SequenceState::kOffloading || state == SequenceState::kOnloading;
}

}  // namespace

// ---------------------------------------------------------------- what the executor reports

void Engine::absorb_tier_events(Nanos now) {
  if (kv_.total_blocks(Tier::kHost) == 0) {
    return;
  }
  const TierEvents events = executor_.take_tier_events();
  if (recorder_ != nullptr) {
    recorder_->tiers(next_step_, events);
  }
  for (const int64_t id : events.transfers_done) {
    if (const auto written = write_throughs_.find(id); written != write_throughs_.end()) {
      end_write_through(written->second);
      write_throughs_.erase(written);
      continue;
    }
    if (fetch_copied(id)) {
      continue;
    }
    const auto entry = transfers_.find(id);
    CHECK(entry != transfers_.end(), "transfer {} is done, but it is not under way", id);
    entry->second->transfer = 0;
    kv_.copied(entry->second->kv);
    transfers_.erase(entry);
  }
  for (const BlockId block : events.lost_blocks) {
    kv_.retire(Tier::kHost, block);
  }
  for (const BlockId block : events.found_blocks) {
    kv_.restore(Tier::kHost, block);
  }
  for (const SequenceId id : events.left) {
    const auto entry = sequences_.find(id);
    CHECK(entry != sequences_.end() && entry->second.leaving,
          "sequence {} has left without being told to", raw(id));
    forget_in_executor(entry->second);
  }
  for (const SequenceId id : events.failed) {
    const auto entry = sequences_.find(id);
    CHECK(entry != sequences_.end() && entry->second.in_executor,
          "sequence {} failed, but it has not entered", raw(id));
    host_failed(entry->second, now);
  }
  if (!events.transfers_done.empty() || !events.left.empty() || !events.failed.empty()) {
    settle_transfers();
    settle_fetches();
    remove_ended();
  }
}

void Engine::forget_in_executor(LiveSequence& sequence) {
  leaving_ -= sequence.leaving ? 1 : 0;
  --in_executor_;
  sequence.leaving = false;
  sequence.in_executor = false;
  if (sequence.state.state() == SequenceState::kDropped) {
    requeue(sequence);
  }
}

void Engine::host_failed(LiveSequence& sequence, Nanos now) {
  forget_in_executor(sequence);
  if (sequence.state.state() != SequenceState::kParkedInFlight) {
    return;  // it ended or goes elsewhere, and its KV is whole
  }
  ++sequence.host_failures;
  doubt_host(now);
  if (sequence.host_failures > config_.max_host_failures) {
    end(sequence, FinishReason::kError, now,
        fmt::format("the host failed to compute the attention of this request {} times; the "
                    "server's log says why",
                    sequence.host_failures));
    return;
  }
  // What it had before this token is whole. The token's own block was not begun.
  --under_way_;
  sequence.state.change_to(SequenceState::kParkedWaiting);
  kv_.shrink(sequence.kv, sequence.computed_tokens);
  sequence.comes_back = true;
  some_come_back_ = true;
}

void Engine::doubt_host(Nanos now) {
  constexpr int32_t kFailuresToSuspend = 4;
  constexpr Nanos kFirstSuspension = std::chrono::seconds(10);
  constexpr int32_t kMostDoublings = 5;
  if (++failures_in_a_row_ < kFailuresToSuspend || now < suspended_until_) {
    return;
  }
  suspended_until_ = now + kFirstSuspension * (1 << std::min(suspensions_, kMostDoublings));
  ++suspensions_;
}

int32_t Engine::places_left() const {
  const auto coming = std::ranges::count_if(offloaded_, [](const LiveSequence* sequence) {
    return sequence->state.state() == SequenceState::kOnloading;
  });
  // A prompt takes the places of all that it becomes.
  auto places = config_.max_running - static_cast<int32_t>(coming);
  for (const LiveSequence* sequence : running_) {
    places -= sequence->choices;
  }
  return places;
}

void Engine::take_back_failed() {
  if (!std::exchange(some_come_back_, false)) {
    return;
  }
  std::vector<LiveSequence*> failed;
  std::ranges::copy_if(offloaded_, std::back_inserter(failed),
                       [](const LiveSequence* sequence) { return sequence->comes_back; });
  for (LiveSequence* sequence : failed) {
    sequence->comes_back = false;
    if (sequence->state.state() != SequenceState::kParkedWaiting) {
      continue;  // it ended
    }
    if (places_left() < 1 || sequence->kv.blocks() >= kv_.free_blocks() ||
        !begin_onload(*sequence)) {
      drop(*sequence);
      ++record_.preempted;
    }
  }
  if (!failed.empty()) {
    settle_transfers();
  }
}

void Engine::leave_executor(LiveSequence& sequence) {
  if (!sequence.in_executor || sequence.leaving) {
    return;
  }
  sequence.leaving = true;
  ++leaving_;
  executor_.leave(sequence.id);
}

// Changes the authority of every sequence whose copy is complete.
void Engine::settle_transfers() {
  std::vector<LiveSequence*> back;
  for (LiveSequence* sequence : offloaded_) {
    if (!sequence->kv.moving() || sequence->in_flight() || !kv_.transfer_ready(sequence->kv)) {
      continue;
    }
    if (sequence->state.state() == SequenceState::kOffloading) {
      kv_.commit_transfer(sequence->kv);
      sequence->parked_since = now_;
      sequence->state.change_to(sequence->decodes() ? SequenceState::kParkedWaiting
                                                    : SequenceState::kSwapped);
    } else if (sequence->state.state() == SequenceState::kOnloading) {
      kv_.commit_transfer(sequence->kv);
      sequence->state.change_to(sequence->decodes() ? SequenceState::kDecoding
                                                    : SequenceState::kPrefilling);
      back.push_back(sequence);
    }
  }
  for (LiveSequence* sequence : back) {
    std::erase(offloaded_, sequence);
    insert_by_admission(running_, *sequence);
  }
}

// ---------------------------------------------------------------- offload and onload

bool Engine::begin_transfers(const StepPlan& plan) {
  bool moved = false;
  for (const SequenceId id : plan.offload) {
    if (begin_offload(sequences_.at(id))) {
      moved = true;
    } else {
      put_off("the offload", id);
    }
  }
  for (const SequenceId id : plan.onload) {
    if (begin_onload(sequences_.at(id))) {
      moved = true;
    } else {
      put_off("the return", id);
    }
  }
  if (moved) {
    settle_transfers();  // where everything was there already
  }
  return moved;
}

bool Engine::begin_offload(LiveSequence& sequence) {
  auto blocks = kv_.begin_transfer(sequence.kv, sequence.computed_tokens);
  if (!blocks.has_value()) {
    return false;
  }
  sequence.state.change_to(SequenceState::kOffloading);
  std::erase(running_, &sequence);
  insert_by_admission(offloaded_, sequence);
  begin_copy(sequence, TransferKind::kOffload, std::move(*blocks));
  return true;
}

bool Engine::begin_onload(LiveSequence& sequence) {
  auto blocks = kv_.begin_transfer(sequence.kv, sequence.computed_tokens);
  if (!blocks.has_value()) {
    return false;
  }
  sequence.state.change_to(SequenceState::kOnloading);
  end_parking(sequence);
  leave_executor(sequence);
  begin_copy(sequence, TransferKind::kOnload, std::move(*blocks));
  return true;
}

void Engine::begin_copy(LiveSequence& sequence, TransferKind kind,
                        std::vector<TierTransfer::Pair> blocks) {
  if (blocks.empty()) {
    kv_.copied(sequence.kv);
    return;
  }
  sequence.transfer = next_transfer_++;
  transfers_.emplace(sequence.transfer, &sequence);
  input_.transfers.push_back({sequence.transfer, kind, std::move(blocks)});
}

// The copy is a second user of the blocks on both sides, so whatever becomes of the sequence,
// nobody else gets them meanwhile. Afterwards the host's are cached ones without a user: an offload
// finds them, and whoever needs the room evicts them.
void Engine::begin_write_through(const StepPlan& plan) {
  for (const SequenceId id : plan.write_through) {
    LiveSequence& sequence = sequences_.at(id);
    const int32_t full = sequence.computed_tokens / kv_.block_tokens();
    if (config_.prefix_caching == PrefixCaching::kOff || full <= sequence.written_blocks ||
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
    const int64_t transfer = next_transfer_++;
    input_.transfers.push_back({transfer, TransferKind::kOffload, std::move(*blocks)});
    write_throughs_.emplace(transfer, std::move(copy));
  }
}

void Engine::end_write_through(SequenceKv& kv) {
  kv_.copied(kv);
  kv_.abort_transfer(kv);
  kv_.release(kv);
}

// ---------------------------------------------------------------- tokens of offloaded sequences

// Latency-sensitive ones first, then by admission.
bool Engine::enter_tokens(const StepPlan& plan) {
  if (offloaded_.empty()) {
    return false;
  }
  first_lane_ = plan.first_lane;
  std::ranges::sort(first_lane_);
  std::array<std::vector<LiveSequence*>, kServiceClasses> waiting;  // few
  for (LiveSequence* sequence : offloaded_) {
    if (sequence->state.state() == SequenceState::kParkedWaiting) {
      waiting[static_cast<size_t>(sequence->service_class)].push_back(sequence);
    }
  }
  bool starved = false;
  for (const std::vector<LiveSequence*>& of_class : waiting) {
    for (LiveSequence* sequence : of_class) {
      starved |= !enter(*sequence);
    }
  }
  // As long as anything is on its way, somebody will end or go and leave blocks.
  return starved && under_way_ == 0 && !tier_busy() && make_host_room();
}

// False: the host has no block for its next token.
bool Engine::enter(LiveSequence& sequence) {
  if (!sequence.in_executor && in_executor_ >= executor_.limits().offloaded_sequences) {
    return true;  // it waits for a place, those end by themselves
  }
  const int32_t position = sequence.computed_tokens;
  CHECK(!kv_.needs_copy(sequence.kv, position),
        "sequence {} shares the block it writes on the host", raw(sequence.id));
  if (!kv_.grow(sequence.kv, position + 1)) {
    return false;
  }
  in_executor_ += sequence.in_executor ? 0 : 1;
  sequence.in_executor = true;
  sequence.state.change_to(SequenceState::kParkedInFlight);
  ++under_way_;
  OffloadedToken& token = input_.entering.emplace_back();
  token.sequence = sequence.id;
  token.lane =
      input_.mode == StepMode::kGroups || std::ranges::binary_search(first_lane_, sequence.id) ? 0
                                                                                               : 1;
  token.token = sequence.tokens.back();
  token.position = position;
  token.host_table = sequence.kv.table();
  fill_sample(sequence, token.sample);
  return true;
}

// Every offloaded sequence waits for a host block that none of them will free: the newest one goes,
// back to the accelerator where that has room, else to be computed anew. The oldest then goes on,
// so this ends.
bool Engine::make_host_room() {
  LiveSequence* victim = nullptr;
  for (LiveSequence* sequence : offloaded_) {
    const bool better = victim == nullptr || sequence->service_class >= victim->service_class;
    if (between_tokens(*sequence) && better) {
      victim = sequence;
    }
  }
  CHECK(victim != nullptr, "the host is full of {} sequences, but none of them can go",
        offloaded_.size());
  if (places_left() > 0 && victim->kv.blocks() < kv_.free_blocks() && begin_onload(*victim)) {
    settle_transfers();
    return true;
  }
  drop(*victim);
  ++record_.preempted;
  return true;
}

void Engine::end_parking(LiveSequence& sequence) const {
  if (sequence.parked_since) {
    sequence.parked += now_ - *sequence.parked_since;
    sequence.parked_since.reset();
  }
}

void Engine::drop(LiveSequence& sequence) {
  under_way_ -= sequence.state.state() == SequenceState::kParkedInFlight ? 1 : 0;
  sequence.state.change_to(SequenceState::kDropped);
  ++sequence.preemptions;
  end_parking(sequence);
  leave_executor(sequence);
  if (!sequence.in_flight()) {
    requeue(sequence);
  }
}

void Engine::requeue(LiveSequence& sequence) {
  kv_.release(sequence.kv);
  sequence.computed_tokens = 0;
  sequence.written_blocks = 0;
  sequence.fetched = LiveSequence::Fetched::kNo;
  std::erase(running_, &sequence);
  std::erase(offloaded_, &sequence);
  enqueue(sequence);
}

// Into the queue at its place, so that nobody younger overtakes it.
void Engine::enqueue(LiveSequence& sequence) {
  const bool by_class = policy_.queue_order() == QueueOrder::kClassFirst;
  const auto key = [&](const LiveSequence* one) {
    return std::tuple(by_class ? static_cast<int>(one->service_class) : 0,
                      by_class ? one->level : 0, one->owner->id, one->choice);
  };
  const auto later = std::ranges::upper_bound(waiting_, key(&sequence), {}, key);
  waiting_.insert(later, &sequence);
}

// ---------------------------------------------------------------- view and books

// Of hundreds of offloaded sequences a dozen get a token in a step, so what is shown of the others
// stands: nothing of one that stays on the host changes but with its state.
void Engine::view_offloaded(SystemView& view) {
  for (const LiveSequence* sequence : offloaded_) {
    __builtin_prefetch(sequence);
  }
  size_t places = 0;
  for (LiveSequence* sequence : offloaded_) {
    const SequenceState state = sequence->state.state();
    if (state == SequenceState::kFinishing || state == SequenceState::kDropped) {
      continue;
    }
    if (places == offloaded_views_.size()) {
      offloaded_views_.emplace_back();
    }
    SequenceView& shown = offloaded_views_[places++];
    if (sequence->state.take_changed() || shown.id != sequence->id || moves(state)) {
      show(*sequence, shown);
    }
    view.budget.sequences -= state == SequenceState::kOnloading ? 1 : 0;
    if (state == SequenceState::kParkedWaiting || state == SequenceState::kOffloading) {
      view.budget.host_free_blocks -= kv_.blocks_for(shown.known_tokens) - shown.held_blocks;
    }
  }
  offloaded_views_.resize(places);
  view.budget.sequences = std::max(view.budget.sequences, 0);
  view.budget.host_free_blocks = std::max<int64_t>(view.budget.host_free_blocks, 0);
  if (view.now < suspended_until_) {
    view.budget.host_free_blocks = 0;
  }
  view.offloaded = offloaded_views_;
}

Status Engine::audit_views() const {
  for (const LiveSequence* sequence : offloaded_) {
    const auto shown = std::ranges::find(offloaded_views_, sequence->id, &SequenceView::id);
    if (shown == offloaded_views_.end() || sequence->state.changed() ||
        moves(sequence->state.state())) {
      continue;
    }
    SequenceView anew;
    show(*sequence, anew);
    anew.own_blocks = shown->own_blocks;
    if (anew != *shown) {
      return Error{ErrorCode::kInternal,
                   fmt::format("what is shown of sequence {} in state {} is out of date",
                               raw(sequence->id), state_name(sequence->state.state())),
                   ""};
    }
  }
  return {};
}

Status Engine::audit() const {
  RETURN_IF_ERROR(audit_views());
  std::vector<const SequenceKv*> users;
  std::array<int32_t, 3> counted{};  // in the executor, leaving, under way
  size_t transfers = 0;
  for (const auto& [id, sequence] : sequences_) {
    users.push_back(&sequence.kv);
    counted[0] += sequence.in_executor ? 1 : 0;
    counted[1] += sequence.leaving ? 1 : 0;
    counted[2] += sequence.state.state() == SequenceState::kParkedInFlight ? 1 : 0;
    transfers += sequence.transfer != 0 ? 1 : 0;
  }
  if (counted != std::array{in_executor_, leaving_, under_way_} || transfers != transfers_.size() ||
      sequences_.size() != running_.size() + waiting_.size() + offloaded_.size()) {
    return Error{ErrorCode::kInternal,
                 fmt::format("sequences do not add up: {} known, {} running, {} waiting, {} "
                             "offloaded; {} in the executor, {} leaving, {} under way, {} copies",
                             sequences_.size(), running_.size(), waiting_.size(), offloaded_.size(),
                             in_executor_, leaving_, under_way_, transfers_.size()),
                 ""};
  }
  for (const auto& [id, kv] : write_throughs_) {
    users.push_back(&kv);
  }
  for (const Fetch& fetch : fetches_) {
    users.push_back(&fetch.prefix.there);
    users.push_back(&fetch.prefix.coming);
  }
  return kv_.audit(users);
}

}  // namespace tandem
