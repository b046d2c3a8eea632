#include "piggyback/core/hop_core.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/check.h"

namespace tandem::piggyback {
namespace {

const HopLimits& checked(const HopLimits& limits) {
  CHECK(
      limits.slots >= 1 && limits.ring_rows >= 1 && limits.hop_rows >= 1 && limits.last_stage >= 1,
      "{} slots, {} ring rows, {} hop rows, last stage {}", limits.slots, limits.ring_rows,
      limits.hop_rows, limits.last_stage);
  CHECK(limits.attempts >= 1 && limits.attempts <= kMaxAttempts, "{} attempts", limits.attempts);
  return limits;
}

}  // namespace

HopCore::HopCore(const HopLimits& limits)
    : limits_(checked(limits)),
      slots_(static_cast<size_t>(limits.slots)),
      rows_(static_cast<size_t>(limits.hop_rows)),
      queues_((static_cast<size_t>(limits.last_stage) + 1) * kLanes),
      consumed_(static_cast<size_t>(limits.hop_rows)),
      allocator_(limits.hop_rows),
      ring_(limits.ring_rows),
      done_(limits.hop_rows) {
  for (int32_t slot = limits.slots - 1; slot >= 0; --slot) {
    free_slots_.push_back(slot);
  }
  rows_in_[static_cast<size_t>(RowState::kFree)] = limits.hop_rows;
  named_.reserve(slots_.size());
  left_.reserve(slots_.size());
  failed_.reserve(slots_.size());
}

// -- small parts

const HopCore::Queue& HopCore::queue(int32_t stage, int32_t lane) const {
  CHECK(stage >= 0 && stage <= limits_.last_stage && lane >= 0 && lane < kLanes,
        "stage {} of {}, lane {}", stage, limits_.last_stage, lane);
  return queues_[static_cast<size_t>(stage * kLanes + lane)];
}

int32_t HopCore::find_slot(SequenceId sequence) const {
  const auto at = std::lower_bound(named_.begin(), named_.end(), sequence,
                                   [](const Named& a, SequenceId b) { return a.sequence < b; });
  return at != named_.end() && at->sequence == sequence ? at->slot : -1;
}

int32_t HopCore::take_slot(SequenceId sequence) {
  if (free_slots_.empty()) {
    return -1;
  }
  const int32_t slot = free_slots_.back();
  free_slots_.pop_back();
  const auto at = std::lower_bound(named_.begin(), named_.end(), sequence,
                                   [](const Named& a, SequenceId b) { return a.sequence < b; });
  named_.insert(at, {sequence, slot});
  slot_at(slot).sequence = sequence;
  slot_at(slot).state = SlotState::kIdle;
  return slot;
}

// A hop of the token is on its way to the next stage, in the slot's lane.
void HopCore::begin_coming(const Slot& slot) {
  Queue& queue = queue_of(slot.stage + 1, slot.lane);
  const int64_t ticket = row_at(slot.row).ticket;
  ++queue.coming;
  if (ticket > queue.newest_ticket) {
    queue.newest_ticket = ticket;
    queue.newest = 0;
  }
  queue.newest += ticket == queue.newest_ticket ? 1 : 0;
}

// It has come, or it will not.
void HopCore::end_coming(const Slot& slot) {
  Queue& queue = queue_of(slot.stage + 1, slot.lane);
  --queue.coming;
  queue.newest -= row_at(slot.row).ticket == queue.newest_ticket ? 1 : 0;
}

void HopCore::become_ready(int32_t slot, int32_t stage, Nanos now) {
  Slot& waiting = slot_at(slot);
  waiting.state = SlotState::kReady;
  waiting.stage = stage;
  waiting.ready_since = now;
  join_queue(slot);
}

// The end of the queue of its stage and lane.
void HopCore::join_queue(int32_t slot) {
  Slot& waiting = slot_at(slot);
  Queue& queue = queue_of(waiting.stage, waiting.lane);
  waiting.turn = ++turn_;
  waiting.previous = queue.last;
  waiting.next = -1;
  (queue.last >= 0 ? slot_at(queue.last).next : queue.first) = slot;
  queue.last = slot;
  ++queue.count;
}

void HopCore::leave_queue(int32_t slot) {
  Slot& one = slot_at(slot);
  Queue& queue = queue_of(one.stage, one.lane);
  (one.previous >= 0 ? slot_at(one.previous).next : queue.first) = one.next;
  (one.next >= 0 ? slot_at(one.next).previous : queue.last) = one.previous;
  --queue.count;
}

void HopCore::push_due(int32_t row, bool first) {
  Row& one = row_at(row);
  set_state(one, RowState::kDue);
  one.previous_due = first ? -1 : due_.last;
  one.next_due = first ? due_.first : -1;
  (one.previous_due >= 0 ? row_at(one.previous_due).next_due : due_.first) = row;
  (one.next_due >= 0 ? row_at(one.next_due).previous_due : due_.last) = row;
  ++due_.count;
}

void HopCore::remove_due(int32_t row) {
  Row& one = row_at(row);
  (one.previous_due >= 0 ? row_at(one.previous_due).next_due : due_.first) = one.next_due;
  (one.next_due >= 0 ? row_at(one.next_due).previous_due : due_.last) = one.previous_due;
  --due_.count;
}

// -- tokens

bool HopCore::enter(SequenceId sequence, TokenId token, int32_t position, Nanos now, int32_t lane) {
  CHECK(lane >= 0 && lane < kLanes, "lane {} of {}", lane, kLanes);
  int32_t slot = find_slot(sequence);
  if (slot < 0) {
    slot = take_slot(sequence);
    if (slot < 0) {
      return false;
    }
  }
  Slot& one = slot_at(slot);
  CHECK(one.state == SlotState::kIdle,
        "sequence {} enters with position {} while its position {} is at stage {}, state {}",
        raw(sequence), position, one.position, one.stage, static_cast<int>(one.state));
  one.token = token;
  one.position = position;
  one.lane = static_cast<int8_t>(lane);
  ++tokens_;
  become_ready(slot, 0, now);
  return true;
}

bool HopCore::move_lane(SequenceId sequence, int32_t lane) {
  CHECK(lane >= 0 && lane < kLanes, "lane {} of {}", lane, kLanes);
  const int32_t slot = find_slot(sequence);
  if (slot < 0) {
    return false;
  }
  Slot& moved = slot_at(slot);
  const bool waits = moved.state == SlotState::kReady;
  if (!waits && moved.state != SlotState::kOut) {
    return false;
  }
  if (moved.lane == lane) {
    return true;
  }
  if (waits) {
    leave_queue(slot);
  } else {
    end_coming(moved);
  }
  moved.lane = static_cast<int8_t>(lane);
  if (waits) {
    join_queue(slot);
  } else {
    begin_coming(moved);
  }
  return true;
}

bool HopCore::leave(SequenceId sequence) {
  const int32_t slot = find_slot(sequence);
  if (slot < 0) {
    const auto failed = std::find(failed_.begin(), failed_.end(), sequence);
    if (failed == failed_.end()) {
      return false;
    }
    failed_.erase(failed);
    left_.push_back(sequence);
    return true;
  }
  if (slot_at(slot).state == SlotState::kLeaving) {
    return std::exchange(slot_at(slot).failed, false);
  }
  leave_slot(slot);
  return true;
}

void HopCore::leave_slot(int32_t slot) {
  Slot& one = slot_at(slot);
  if (one.state == SlotState::kReady) {
    leave_queue(slot);
  } else if (one.state == SlotState::kOut) {
    end_coming(one);
  }
  if (one.state != SlotState::kIdle) {
    --tokens_;
  }
  one.state = SlotState::kLeaving;
  if (one.row >= 0) {
    leave_row(one.row);  // may give the slot back
  } else {
    release_slot(slot);
  }
}

// What waits goes; what a copy holds goes when it comes back.
void HopCore::leave_row(int32_t row) {
  switch (row_at(row).state) {
    case RowState::kDue:
      remove_due(row);
      release_row(row);
      break;
    case RowState::kDone:
      done_.erase({row, 1});
      release_row(row);
      break;
    case RowState::kWorking:
    case RowState::kReady:
      release_row(row);
      break;
    default:
      break;
  }
}

void HopCore::take_left(std::vector<SequenceId>& sequences) {
  sequences.insert(sequences.end(), left_.begin(), left_.end());
  left_.clear();
}

void HopCore::take_failed(std::vector<SequenceId>& sequences) {
  sequences.insert(sequences.end(), failed_.begin(), failed_.end());
  failed_.clear();
}

void HopCore::give_up(int32_t slot) {
  slot_at(slot).failed = true;
  leave_slot(slot);
}

// Free, or kept until the last attempt has answered.
void HopCore::release_row(int32_t row) {
  Row& one = row_at(row);
  Slot& slot = slot_at(one.slot);
  if (slot.row == row) {
    slot.row = -1;
  }
  if (one.unanswered != 0) {
    set_state(one, RowState::kSpent);
    return;
  }
  const int32_t owner = one.slot;
  set_state(one, RowState::kFree);
  one.slot = -1;
  allocator_.give_back(row);
  --slot.rows_held;
  if (slot.state == SlotState::kLeaving) {
    release_slot(owner);
  }
}

// Of a sequence that leaves: free once nothing of it is held any more.
void HopCore::release_slot(int32_t slot) {
  Slot& one = slot_at(slot);
  if (one.rows_held > 0) {
    return;
  }
  const auto at = std::lower_bound(named_.begin(), named_.end(), one.sequence,
                                   [](const Named& a, SequenceId b) { return a.sequence < b; });
  named_.erase(at);
  (std::exchange(one.failed, false) ? failed_ : left_).push_back(one.sequence);
  one.state = SlotState::kFree;
  free_slots_.push_back(slot);
}

// -- bind

int32_t HopCore::ready(int32_t stage) const {
  int32_t count = 0;
  for (int32_t lane = 0; lane < kLanes; ++lane) {
    count += ready(stage, lane);
  }
  return count;
}

int32_t HopCore::coming(int32_t stage) const {
  int32_t count = 0;
  for (int32_t lane = 0; lane < kLanes; ++lane) {
    count += coming(stage, lane);
  }
  return count;
}

int32_t HopCore::coming_from_before(int32_t stage, int64_t ticket) const {
  int32_t count = coming(stage);
  for (int32_t lane = 0; lane < kLanes; ++lane) {
    const Queue& one = queue(stage, lane);
    count -= one.newest_ticket >= ticket ? one.newest : 0;
  }
  return count;
}

int32_t HopCore::next_stage(SequenceId sequence) const {
  const int32_t slot = find_slot(sequence);
  if (slot < 0) {
    return -1;
  }
  const Slot& one = slot_at(slot);
  return one.state == SlotState::kReady ? one.stage
         : one.state == SlotState::kOut ? one.stage + 1
                                        : -1;
}

int32_t HopCore::credits(int32_t stage) const {
  CHECK(stage >= 0 && stage <= limits_.last_stage, "stage {} of {}", stage, limits_.last_stage);
  if (stage == limits_.last_stage) {
    return std::numeric_limits<int32_t>::max();
  }
  // Later ones can take over the rows that they consume.
  return stage == 0 ? std::min(ring_.free_rows(), allocator_.free_rows()) : ring_.free_rows();
}

void HopCore::bind(int32_t stage, int32_t limit, int64_t ticket, std::vector<Visit>& visits) {
  constexpr std::array<int32_t, kLanes> kAll = {0, 1};
  bind_lanes(stage, kAll, limit, ticket, visits);
}

void HopCore::bind_lane(int32_t stage, int32_t lane, int32_t limit, int64_t ticket,
                        std::vector<Visit>& visits) {
  bind_lanes(stage, {&lane, 1}, limit, ticket, visits);
}

void HopCore::bind_lanes(int32_t stage, std::span<const int32_t> lanes, int32_t limit,
                         int64_t ticket, std::vector<Visit>& visits) {
  CHECK(ticket >= ticket_, "ticket {} after {}", ticket, ticket_);
  ticket_ = ticket;
  const bool last = stage == limits_.last_stage;
  int32_t waiting = 0;
  for (const int32_t lane : lanes) {
    waiting += ready(stage, lane);
  }
  int32_t wanted = std::min({limit, waiting, credits(stage)});
  RowRun run;
  for (const int32_t lane : lanes) {
    for (int32_t slot = queue(stage, lane).first; slot >= 0 && wanted > 0;) {
      const int32_t next = slot_at(slot).next;
      int32_t row = -1;
      if (!last) {
        if (run.rows == 0 && allocator_.free_rows() > 0) {
          run = allocator_.take(wanted);
        }
        const int32_t held = slot_at(slot).row;
        if (run.rows > 0) {
          row = run.begin++;
          --run.rows;
        } else if (held >= 0 && row_at(held).unanswered == 0) {
          row = held;
        } else {
          slot = next;  // no row for this one now
          continue;
        }
      }
      visits.push_back(visit(slot, row, ticket));
      --wanted;
      slot = next;
    }
  }
  CHECK(run.rows == 0, "{} hop rows were taken for nobody", run.rows);
}

Visit HopCore::visit(int32_t slot, int32_t hop_row, int64_t ticket) {
  Slot& one = slot_at(slot);
  leave_queue(slot);
  ++one.generation;
  Visit visit{.hop = {slot, one.generation},
              .sequence = one.sequence,
              .token = one.token,
              .position = one.position,
              .return_row = one.row};
  if (one.row >= 0 && one.row != hop_row) {
    set_state(row_at(one.row), RowState::kConsumed);
    const int32_t end = consumed_first_ + consumed_count_;
    consumed_[static_cast<size_t>(end < limits_.hop_rows ? end : end - limits_.hop_rows)] = {
        ticket, one.row};
    ++consumed_count_;
  }
  const bool takes_over = hop_row >= 0 && one.row == hop_row;
  one.row = hop_row;
  if (hop_row < 0) {
    one.state = SlotState::kIdle;
    --tokens_;
    return visit;
  }
  Row& row = row_at(hop_row);
  set_state(row, RowState::kExiting);
  row.slot = slot;
  row.generation = one.generation;
  row.layer = one.stage;
  row.position = one.position;
  row.attempt = 0;
  row.ring_row = ring_.reserve();
  row.ticket = ticket;
  one.rows_held += takes_over ? 0 : 1;
  one.state = SlotState::kOut;
  begin_coming(one);
  visit.ring_row = row.ring_row;
  visit.hop_row = hop_row;
  return visit;
}

void HopCore::exit_runs(std::span<const Visit> visits, std::vector<ExitRun>& runs) {
  const ExitRun* open = nullptr;
  for (const Visit& visit : visits) {
    if (visit.hop_row < 0) {
      continue;
    }
    if (open != nullptr && open->ring_row + open->rows == visit.ring_row &&
        open->hop_row + open->rows == visit.hop_row) {
      ++runs.back().rows;
    } else {
      runs.push_back({visit.ring_row, visit.hop_row, 1});
    }
    open = &runs.back();
  }
}

}  // namespace tandem::piggyback
