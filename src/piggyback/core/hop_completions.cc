// HopCore: what copies, groups and workers report.
#include <algorithm>

#include "base/check.h"
#include "piggyback/core/hop_core.h"

namespace tandem::piggyback {
namespace {

uint32_t attempt_bit(int32_t attempt) { return uint32_t{1} << attempt; }

}  // namespace

void HopCore::group_done(int64_t ticket) {
  while (consumed_count_ > 0) {
    const Consumed& oldest = consumed_[static_cast<size_t>(consumed_first_)];
    if (oldest.ticket > ticket) {
      return;
    }
    consumed_first_ = consumed_first_ + 1 < limits_.hop_rows ? consumed_first_ + 1 : 0;
    --consumed_count_;
    release_row(oldest.row);
  }
}

void HopCore::exits_copied(std::span<const HopId> hops) {
  for (const HopId hop : hops) {
    CHECK(hop.slot >= 0 && hop.slot < limits_.slots, "slot {} of {}", hop.slot, limits_.slots);
    const int32_t row = slot_at(hop.slot).row;
    CHECK(row >= 0 && row_at(row).generation == hop.generation &&
              row_at(row).state == RowState::kExiting,
          "the exit of hop {} of slot {} is complete, which is not on its way", hop.generation,
          hop.slot);
    ring_.release(row_at(row).ring_row);
    row_at(row).ring_row = -1;
    if (leaving(row_at(row))) {
      release_row(row);
    } else {
      push_due(row, /*first=*/false);
    }
  }
}

HopTask HopCore::task_of(int32_t row) const {
  const Row& one = row_at(row);
  const Slot& slot = slot_at(one.slot);
  return {.hop = {one.slot, one.generation},
          .sequence = slot.sequence,
          .layer = one.layer,
          .position = one.position,
          .hop_row = row,
          .attempt = one.attempt,
          .handed_out = one.handed_out};
}

bool HopCore::next_task(Nanos now, HopTask& task) {
  const int32_t row = due_.first;
  if (row < 0) {
    return false;
  }
  remove_due(row);
  Row& one = row_at(row);
  set_state(one, RowState::kWorking);
  one.unanswered |= attempt_bit(one.attempt);
  one.handed_out = now;
  task = task_of(row);
  return true;
}

// The row of the hop: the one it is at, or one that it left behind with an attempt unanswered.
int32_t HopCore::find_row(HopId hop) const {
  if (hop.slot < 0 || hop.slot >= limits_.slots) {
    return -1;
  }
  const int32_t current = slot_at(hop.slot).row;
  if (current >= 0 && row_at(current).generation == hop.generation) {
    return current;
  }
  for (int32_t row = 0; row < limits_.hop_rows; ++row) {
    const Row& one = row_at(row);
    if (one.unanswered != 0 && one.slot == hop.slot && one.generation == hop.generation) {
      return row;
    }
  }
  return -1;
}

// Notes that the attempt is back. True: its hop still waits for an answer, in `row`.
bool HopCore::answered(HopId hop, int32_t attempt, int32_t& row) {
  row = attempt >= 0 && attempt < kMaxAttempts ? find_row(hop) : -1;
  if (row < 0 || (row_at(row).unanswered & attempt_bit(attempt)) == 0) {
    return false;
  }
  Row& one = row_at(row);
  one.unanswered &= ~attempt_bit(attempt);
  if (one.state == RowState::kSpent) {
    release_row(row);
    return false;
  }
  if (one.state == RowState::kLost) {
    if (one.unanswered == 0) {
      one.slot = -1;
      set_state(one, RowState::kFree);
      allocator_.give_back(row);
    }
    return false;
  }
  return one.state == RowState::kWorking || one.state == RowState::kDue;
}

bool HopCore::task_done(HopId hop, int32_t attempt) {
  int32_t row = -1;
  if (!answered(hop, attempt, row)) {
    return false;
  }
  if (row_at(row).state == RowState::kDue) {
    remove_due(row);  // an earlier attempt was faster than the next one's start
  }
  set_state(row_at(row), RowState::kDone);
  done_.insert(row);
  return true;
}

bool HopCore::task_failed(HopId hop, int32_t attempt) {
  int32_t row = -1;
  if (!answered(hop, attempt, row) || row_at(row).state != RowState::kWorking ||
      row_at(row).attempt != attempt) {
    return false;
  }
  try_again(row);
  return true;
}

bool HopCore::retry(HopId hop) {
  const int32_t row = find_row(hop);
  if (row < 0 || row_at(row).state != RowState::kWorking) {
    return false;
  }
  return try_again(row);
}

bool HopCore::try_again(int32_t row) {
  Row& one = row_at(row);
  if (one.attempt + 1 >= limits_.attempts) {
    give_up(one.slot);
    return false;
  }
  ++one.attempt;
  push_due(row, /*first=*/true);
  return true;
}

void HopCore::take_returns(std::vector<RowRun>& runs) {
  for (RowRun run = done_.run_from(0, limits_.hop_rows); run.rows > 0;
       run = done_.run_from(run.begin + run.rows, limits_.hop_rows)) {
    done_.erase(run);
    for (int32_t row = run.begin; row < run.begin + run.rows; ++row) {
      set_state(row_at(row), RowState::kReturning);
    }
    runs.push_back(run);
  }
}

void HopCore::returns_copied(std::span<const RowRun> runs, Nanos now) {
  for (const RowRun& run : runs) {
    CHECK(run.begin >= 0 && run.rows >= 0 && run.begin <= limits_.hop_rows - run.rows,
          "rows {} + {} of {}", run.begin, run.rows, limits_.hop_rows);
    for (int32_t row = run.begin; row < run.begin + run.rows; ++row) {
      Row& one = row_at(row);
      CHECK(one.state == RowState::kReturning, "the result in row {} was not on its way", row);
      if (leaving(one)) {
        release_row(row);
      } else {
        set_state(one, RowState::kReady);
        end_coming(slot_at(one.slot));
        become_ready(one.slot, one.layer + 1, now);
      }
    }
  }
}

// -- watching

void HopCore::overdue(Nanos now, Nanos age, std::vector<HopTask>& hops) const {
  for (int32_t row = 0; row < limits_.hop_rows; ++row) {
    const Row& one = row_at(row);
    if (one.state == RowState::kWorking && now - one.handed_out >= age) {
      hops.push_back(task_of(row));
    }
  }
}

void HopCore::append_unanswered(int32_t row, std::vector<HopTask>& attempts) const {
  const Row& one = row_at(row);
  for (int32_t attempt = 0; attempt <= one.attempt; ++attempt) {
    if ((one.unanswered & attempt_bit(attempt)) != 0) {
      attempts.push_back(task_of(row));
      attempts.back().attempt = attempt;
    }
  }
}

void HopCore::stragglers(Nanos now, Nanos age, std::vector<HopTask>& attempts) const {
  for (int32_t row = 0; rows_in(RowState::kSpent) > 0 && row < limits_.hop_rows; ++row) {
    const Row& one = row_at(row);
    if (one.state != RowState::kSpent || now - one.handed_out < age) {
      continue;
    }
    append_unanswered(row, attempts);
  }
}

void HopCore::lose(Nanos now, Nanos age, std::vector<HopTask>& attempts) {
  for (int32_t row = 0; rows_in(RowState::kSpent) > 0 && row < limits_.hop_rows; ++row) {
    Row& one = row_at(row);
    if (one.state != RowState::kSpent || now - one.handed_out < age) {
      continue;
    }
    append_unanswered(row, attempts);
    Slot& slot = slot_at(one.slot);
    set_state(one, RowState::kLost);
    --slot.rows_held;
    if (slot.state == SlotState::kLeaving) {
      release_slot(one.slot);
    }
  }
}

// Something of this row goes on without the answer of an attempt that was given up.
bool HopCore::can_move(const Row& row) const {
  switch (row.state) {
    case RowState::kSpent:
    case RowState::kLost:
      return false;
    case RowState::kReady:
      return row.unanswered == 0 || slot_at(row.slot).stage == limits_.last_stage;
    default:
      return true;
  }
}

void HopCore::strand_check(Nanos now, Nanos age) {
  for (const Row& row : rows_) {
    if (can_move(row)) {
      return;
    }
  }
  for (int32_t slot = 0; slot < limits_.slots; ++slot) {
    const Slot& one = slot_at(slot);
    if (one.state == SlotState::kReady && now - one.ready_since >= age) {
      give_up(slot);
    }
  }
}

}  // namespace tandem::piggyback
