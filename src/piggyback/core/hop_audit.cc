// HopCore::audit: every count and list again, from the rows and slots themselves.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "piggyback/core/hop_core.h"

namespace tandem::piggyback {
namespace {

template <class... Values>
Error wrong(fmt::format_string<Values...> text, Values&&... values) {
  return {
      ErrorCode::kInternal, "hop core: " + fmt::format(text, std::forward<Values>(values)...), {}};
}

}  // namespace

Status HopCore::audit() const {
  RETURN_IF_ERROR(audit_rows());
  RETURN_IF_ERROR(audit_slots());
  RETURN_IF_ERROR(audit_queues());
  return audit_ring();
}

Status HopCore::audit_row(int32_t row) const {
  const Row& one = row_at(row);
  if ((one.state == RowState::kFree) != allocator_.is_free(row)) {
    return wrong("row {} in state {} is {}", row, static_cast<int>(one.state),
                 allocator_.is_free(row) ? "free" : "not free");
  }
  if ((one.state == RowState::kDone) != done_.contains(row)) {
    return wrong("row {} in state {} and the set of results disagree", row,
                 static_cast<int>(one.state));
  }
  if (one.state == RowState::kFree) {
    return one.slot >= 0 || one.unanswered != 0 ? wrong("free row {} is held", row) : Status();
  }
  if (one.slot < 0 || one.slot >= limits_.slots) {
    return wrong("row {} belongs to slot {}", row, one.slot);
  }
  if (one.state == RowState::kLost) {
    return one.unanswered != 0 ? Status() : wrong("row {} waits for no answer", row);
  }
  const Slot& slot = slot_at(one.slot);
  const bool current = one.state != RowState::kConsumed && one.state != RowState::kSpent;
  if (current != (slot.row == row)) {
    return wrong("row {} in state {}, its slot {} is at row {}", row, static_cast<int>(one.state),
                 one.slot, slot.row);
  }
  if (current && one.generation != slot.generation) {
    return wrong("row {} of generation {}, its slot {} is at {}", row, one.generation, one.slot,
                 slot.generation);
  }
  if (one.state == RowState::kSpent && one.unanswered == 0) {
    return wrong("row {} waits for no answer", row);
  }
  if (one.state == RowState::kWorking && (one.unanswered >> one.attempt & 1) == 0) {
    return wrong("row {} is with no worker, attempt {}", row, one.attempt);
  }
  return {};
}

Status HopCore::audit_rows() const {
  std::array<int32_t, kRowStates> counted{};
  for (int32_t row = 0; row < limits_.hop_rows; ++row) {
    RETURN_IF_ERROR(audit_row(row));
    ++counted[static_cast<size_t>(row_at(row).state)];
  }
  if (counted != rows_in_) {
    return wrong("rows in each state are {}, counted {}", fmt::join(rows_in_, " "),
                 fmt::join(counted, " "));
  }
  if (rows_in(RowState::kConsumed) != consumed_count_ || rows_in(RowState::kDue) != due_.count ||
      rows_in(RowState::kFree) != allocator_.free_rows()) {
    return wrong("{} consumed, {} due, {} free; listed {} {} {}", rows_in(RowState::kConsumed),
                 rows_in(RowState::kDue), rows_in(RowState::kFree), consumed_count_, due_.count,
                 allocator_.free_rows());
  }
  for (int32_t i = 0; i < consumed_count_; ++i) {
    const int32_t row =
        consumed_[static_cast<size_t>((consumed_first_ + i) % limits_.hop_rows)].row;
    if (row_at(row).state != RowState::kConsumed) {
      return wrong("row {} waits for a group in state {}", row,
                   static_cast<int>(row_at(row).state));
    }
  }
  int32_t previous = -1;
  int32_t listed = 0;
  for (int32_t row = due_.first; row >= 0; row = row_at(row).next_due) {
    if (row_at(row).state != RowState::kDue || row_at(row).previous_due != previous ||
        ++listed > due_.count) {
      return wrong("the list of due hops is broken at row {}", row);
    }
    previous = row;
  }
  return listed == due_.count && due_.last == previous
             ? Status()
             : wrong("{} of {} due hops are listed", listed, due_.count);
}

Status HopCore::audit_slot(int32_t slot) const {
  const Slot& one = slot_at(slot);
  int32_t held = 0;
  for (const Row& row : rows_) {
    held += row.slot == slot && row.state != RowState::kLost ? 1 : 0;
  }
  if (held != one.rows_held) {
    return wrong("slot {} holds {} rows, counted {}", slot, one.rows_held, held);
  }
  if (one.failed && one.state != SlotState::kLeaving) {
    return wrong("slot {} has failed and is in state {}", slot, static_cast<int>(one.state));
  }
  switch (one.state) {
    case SlotState::kFree:
      return held == 0 && one.row < 0 ? Status() : wrong("free slot {} holds {} rows", slot, held);
    case SlotState::kIdle:
      return one.row < 0 ? Status() : wrong("idle slot {} is at row {}", slot, one.row);
    case SlotState::kReady:
      if ((one.stage == 0) != (one.row < 0) ||
          (one.row >= 0 &&
           (row_at(one.row).state != RowState::kReady || row_at(one.row).layer + 1 != one.stage))) {
        return wrong("slot {} waits at stage {} with row {}", slot, one.stage, one.row);
      }
      return {};
    case SlotState::kOut:
      if (one.row < 0 || !is_out(row_at(one.row).state) || row_at(one.row).layer != one.stage) {
        return wrong("slot {} is out from stage {} without a hop", slot, one.stage);
      }
      return {};
    case SlotState::kLeaving:
      return held > 0 ? Status() : wrong("slot {} leaves and nothing holds it", slot);
  }
  return wrong("slot {} is in no state", slot);
}

Status HopCore::audit_slots() const {
  int32_t free = 0;
  int32_t tokens = 0;
  for (int32_t slot = 0; slot < limits_.slots; ++slot) {
    RETURN_IF_ERROR(audit_slot(slot));
    const Slot& one = slot_at(slot);
    free += one.state == SlotState::kFree ? 1 : 0;
    tokens += one.state == SlotState::kReady || one.state == SlotState::kOut ? 1 : 0;
    if (one.state != SlotState::kFree && find_slot(one.sequence) != slot) {
      return wrong("slot {} of sequence {} is not found", slot, raw(one.sequence));
    }
  }
  if (free != std::ssize(free_slots_) || tokens != tokens_ ||
      named_.size() != static_cast<size_t>(limits_.slots - free)) {
    return wrong("{} free slots, {} tokens, {} names; counted {} {}", free_slots_.size(), tokens_,
                 named_.size(), free, tokens);
  }
  for (const int32_t slot : free_slots_) {
    if (slot_at(slot).state != SlotState::kFree) {
      return wrong("slot {} is given out and free", slot);
    }
  }
  return {};
}

Status HopCore::audit_queue(int32_t stage, int32_t lane) const {
  const Queue& one = queue(stage, lane);
  int32_t previous = -1;
  int32_t listed = 0;
  for (int32_t slot = one.first; slot >= 0; slot = slot_at(slot).next) {
    const Slot& entry = slot_at(slot);
    if (entry.state != SlotState::kReady || entry.stage != stage || entry.lane != lane ||
        entry.previous != previous || ++listed > one.count ||
        (previous >= 0 && slot_at(previous).turn >= entry.turn)) {
      return wrong("the queue of stage {}, lane {} is broken at slot {}", stage, lane, slot);
    }
    previous = slot;
  }
  const auto coming = std::ranges::count_if(slots_, [&](const Slot& slot) {
    return slot.state == SlotState::kOut && slot.stage + 1 == stage && slot.lane == lane;
  });
  const auto newest = std::ranges::count_if(slots_, [&](const Slot& slot) {
    return slot.state == SlotState::kOut && slot.stage + 1 == stage && slot.lane == lane &&
           row_at(slot.row).ticket == queue(stage, lane).newest_ticket;
  });
  if (newest != queue(stage, lane).newest) {
    return wrong("{} of {} hops to stage {}, lane {} are of the newest group", newest,
                 queue(stage, lane).newest, stage, lane);
  }
  if (listed != one.count || one.last != previous || coming != one.coming) {
    return wrong("stage {}, lane {} has {} of {} in its queue, and {} of {} are coming", stage,
                 lane, listed, one.count, coming, one.coming);
  }
  return {};
}

Status HopCore::audit_queues() const {
  int32_t waiting = 0;
  for (int32_t stage = 0; stage <= limits_.last_stage; ++stage) {
    for (int32_t lane = 0; lane < kLanes; ++lane) {
      RETURN_IF_ERROR(audit_queue(stage, lane));
      waiting += queue(stage, lane).count;
    }
  }
  const auto ready = std::count_if(slots_.begin(), slots_.end(), [](const Slot& slot) {
    return slot.state == SlotState::kReady;
  });
  return waiting == ready ? Status() : wrong("{} of {} are in a queue", waiting, ready);
}

Status HopCore::audit_ring() const {
  std::vector<char> taken(static_cast<size_t>(limits_.ring_rows), 0);
  int32_t used = 0;
  for (const Row& row : rows_) {
    if ((row.state == RowState::kExiting) != (row.ring_row >= 0)) {
      return wrong("a row in state {} has ring row {}", static_cast<int>(row.state), row.ring_row);
    }
    if (row.ring_row >= 0) {
      ++used;
      if (taken[static_cast<size_t>(row.ring_row)]++ != 0) {
        return wrong("ring row {} is reserved twice", row.ring_row);
      }
    }
  }
  if (used != limits_.ring_rows - ring_.free_rows()) {
    return wrong("{} of {} ring rows are free, counted {} in use", ring_.free_rows(),
                 limits_.ring_rows, used);
  }
  for (int32_t i = 0; i < used; ++i) {
    const auto row = static_cast<size_t>((int64_t{ring_.oldest()} + i) % limits_.ring_rows);
    if (taken[row] == 0) {
      return wrong("ring row {} is in the middle and not reserved", row);
    }
  }
  return {};
}

}  // namespace tandem::piggyback
