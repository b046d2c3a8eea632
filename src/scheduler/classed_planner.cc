#include "scheduler/classed_planner.h"

#include <algorithm>

#include "scheduler/victims.h"

namespace tandem {
namespace {

// Best effort is computed anew for its place, if it must.
bool is_targeted(const SequenceView& sequence) {
  return sequence.promised || sequence.first_token_due != Nanos::max() ||
         sequence.tpot != Nanos::max();
}

bool may_go_to_the_host(const SequenceView& sequence) {
  return sequence.decodes() && sequence.host_failures == 0;
}

}  // namespace

ClassedPlanner::ClassedPlanner(const SystemView& view)
    : view_(view), builder_(view), fates_(view.running.size(), Fate::kOpen) {
  for (const SequenceView& sequence : view.offloaded) {
    if (sequence.state == SequenceState::kOffloading) {
      coming_ += sequence.own_blocks;
      more_comes_ |= sequence.own_blocks < sequence.held_blocks;
    }
  }
}

bool ClassedPlanner::may_decode(size_t index, ServiceClass service_class) const {
  const SequenceView& sequence = view_.running[index];
  return fates_[index] == Fate::kOpen && sequence.service_class == service_class &&
         sequence.decodes();
}

bool ClassedPlanner::may_prefill(size_t index, ServiceClass service_class) const {
  const SequenceView& sequence = view_.running[index];
  return fates_[index] == Fate::kOpen && sequence.service_class == service_class &&
         !sequence.decodes();
}

int64_t ClassedPlanner::blocks_to_begin(const SequenceView& waiting) const {
  return blocks_for(waiting.known_tokens + 1) -
         waiting.computed_tokens / view_.budget.block_tokens + waiting.cached_free_blocks;
}

int64_t ClassedPlanner::blocks_to_grow(size_t index, int32_t tokens) const {
  const SequenceView& sequence = view_.running[index];
  return std::max<int64_t>(blocks_for(sequence.computed_tokens + tokens) - sequence.held_blocks,
                           0) +
         sequence.copy_blocks;
}

// The newest running one of a class that has no part in the plan yet, and may go there.
std::optional<size_t> ClassedPlanner::newest(ServiceClass service_class, Where where) const {
  for (size_t i = fates_.size(); i-- > 0;) {
    const SequenceView& sequence = view_.running[i];
    if (fates_[i] == Fate::kOpen && sequence.service_class == service_class &&
        (where == Where::kAway || may_go_to_the_host(sequence))) {
      return i;
    }
  }
  return std::nullopt;
}

bool ClassedPlanner::offload(size_t index, Need need) {
  const SequenceView& sequence = view_.running[index];
  const int64_t growth = need == Need::kUrgent ? 0 : std::ssize(view_.offloaded) + 1;
  if (fates_[index] != Fate::kOpen || !may_go_to_the_host(sequence) ||
      builder_.host_blocks_left() < sequence.transfer_blocks + growth ||
      builder_.offload(sequence) != Fit::kFits) {
    return false;
  }
  fates_[index] = Fate::kGone;
  leaving_ += sequence.choices;
  coming_ += sequence.own_blocks;
  more_comes_ |= sequence.own_blocks < sequence.held_blocks;
  return true;
}

void ClassedPlanner::offload_best_effort(int64_t wanted, Need need) {
  while (coming_ < wanted) {
    const std::optional<size_t> victim = newest(kBe, Where::kHost);
    if (!victim.has_value() || !offload(*victim, need)) {
      return;
    }
  }
}

ClassedPlanner::Room ClassedPlanner::make_room(ServiceClass service_class, int64_t missing,
                                               std::optional<size_t> asker) {
  offload_best_effort(missing, service_class == kLs ? Need::kUrgent : Need::kWish);
  if (coming_ > 0) {
    return Room::kComing;
  }
  if (service_class == kBe) {
    return asker.has_value() ? drop_newest(kBe, *asker, asker) : Room::kNone;
  }
  const Room room = drop_newest(kBe, 0, std::nullopt);
  if (room != Room::kNone || !asker.has_value()) {
    return room;
  }
  refused_ = true;
  if (more_comes_) {
    return Room::kComing;  // it may be enough: no latency-sensitive sequence goes for nothing
  }
  const std::optional<size_t> victim =
      newest_with_blocks(view_, *asker, [&](size_t i) { return may_go(i, kLs); });
  if (victim.has_value() && offload(*victim, Need::kUrgent)) {
    return Room::kComing;
  }
  return drop_newest(kLs, *asker, asker);
}

ClassedPlanner::Room ClassedPlanner::drop_newest(ServiceClass service_class, size_t first,
                                                 std::optional<size_t> asker) {
  const std::optional<size_t> victim =
      newest_with_blocks(view_, first, [&](size_t i) { return may_go(i, service_class); });
  if (victim.has_value() && victim != asker) {
    drop(*victim);
    return Room::kMade;
  }
  if (asker.has_value() && !victim.has_value()) {
    return Room::kNone;  // it has nothing that it could lose, and waits
  }
  if (drop_sharers(service_class, asker.has_value() ? *asker + 1 : first)) {
    return Room::kComing;
  }
  if (!victim.has_value()) {
    return Room::kNone;
  }
  drop(*victim);
  return Room::kMade;
}

bool ClassedPlanner::drop_sharers(ServiceClass service_class, size_t first) {
  const std::vector<size_t> sharers =
      newest_sharers(view_, first, [&](size_t i) { return may_go(i, service_class); });
  for (const size_t sharer : sharers) {
    drop(sharer);
  }
  return !sharers.empty();
}

void ClassedPlanner::drop(size_t index) {
  const SequenceView& sequence = view_.running[index];
  builder_.preempt(sequence);
  fates_[index] = Fate::kGone;
  leaving_ += sequence.choices;
  more_comes_ |= sequence.own_blocks < sequence.held_blocks;
}

void ClassedPlanner::add(size_t index, int32_t tokens) {
  const SequenceView& sequence = view_.running[index];
  while (fates_[index] == Fate::kOpen) {
    const Fit fit = builder_.add(sequence, tokens);
    if (fit == Fit::kFits) {
      fates_[index] = Fate::kPlanned;
    }
    if (fit != Fit::kNoBlocks) {
      return;
    }
    const int64_t needed = blocks_for(sequence.computed_tokens + tokens) - sequence.held_blocks +
                           sequence.copy_blocks - builder_.blocks_left();
    if (make_room(sequence.service_class, needed, index) != Room::kMade) {
      refused_ = true;
      return;
    }
  }
}

// For the next step. What was promised is kept at the cost of best effort that is computed anew,
// where none can be offloaded.
void ClassedPlanner::make_places(int32_t places, bool may_drop) {
  const auto some_missing = [&] { return places > builder_.sequences_left() + leaving_; };
  while (some_missing()) {
    const std::optional<size_t> victim = newest(kBe, Where::kHost);
    if (!victim.has_value() || !offload(*victim, Need::kUrgent)) {
      break;
    }
  }
  while (may_drop && some_missing()) {
    const std::optional<size_t> victim = newest(kBe, Where::kAway);
    if (!victim.has_value()) {
      return;
    }
    drop(*victim);
  }
}

void ClassedPlanner::make_room_ahead(const RoomAhead& room) {
  if (room.places == 0) {
    return;
  }
  make_places(room.places, true);
  for (Room made = Room::kMade; made == Room::kMade && missing_ahead(room) > 0;) {
    made = make_room(kLs, missing_ahead(room), std::nullopt);
  }
  // What the host has room for may be too little.
  for (Room made = Room::kMade; made == Room::kMade && missing_ahead(room) > coming_;) {
    made = drop_newest(kBe, 0, std::nullopt);
  }
}

bool ClassedPlanner::admit(const SequenceView& waiting, int32_t tokens) {
  if (tokens < 1 || refused_ || builder_.preempts()) {
    return false;
  }
  const Fit fit = waiting.service_class == kLs ? builder_.admit_before_best_effort(waiting, tokens)
                                               : builder_.admit(waiting, tokens);
  if (fit == Fit::kNoSequences && waiting.service_class == kLs) {
    make_places(waiting.choices, is_targeted(waiting));
  }
  if (fit == Fit::kNoBlocks) {
    int64_t missing = builder_.missing_to_admit(waiting, tokens);
    for (Room room = Room::kMade; room == Room::kMade && missing > 0;) {
      room = make_room(waiting.service_class, missing, std::nullopt);
      missing = builder_.missing_to_admit(waiting, tokens);
    }
  }
  return fit == Fit::kFits;
}

void ClassedPlanner::bring_back(ServiceClass service_class, int64_t kept, int32_t most) {
  for (const SequenceView& sequence : view_.offloaded) {
    if (sequence.service_class != service_class || sequence.tier != Tier::kHost ||
        sequence.state == SequenceState::kOnloading) {
      continue;
    }
    const int64_t blocks = blocks_to_onload(sequence);
    const bool between_tokens = sequence.state == SequenceState::kParkedWaiting ||
                                sequence.state == SequenceState::kSwapped;
    const bool comes = between_tokens && !refused_ && most > 0 &&
                       builder_.blocks_left() - blocks >= kept &&
                       builder_.onload(sequence) == Fit::kFits;
    most -= comes ? 1 : 0;
    if (!comes && service_class == kLs) {
      reserved_ += blocks;
    }
    if (comes && std::ranges::count(returning_, sequence.id) > 0) {
      blocks_to_return_ -= blocks;
    }
  }
}

void ClassedPlanner::make_room_to_return(const SequenceView& parked) {
  returning_.push_back(parked.id);
  blocks_to_return_ += blocks_to_onload(parked);
  make_places(static_cast<int32_t>(returning_.size()), is_targeted(parked));
  int64_t missing = blocks_to_return_ - builder_.blocks_left();
  for (Room room = Room::kMade; room == Room::kMade && missing > 0;) {
    room = make_room(kLs, missing, std::nullopt);
    missing = blocks_to_return_ - builder_.blocks_left();
  }
}

void ClassedPlanner::write_through_best_effort(int64_t few_blocks) {
  if (view_.offloaded.empty() && view_.waiting.empty() && view_.budget.free_blocks > few_blocks) {
    return;
  }
  int64_t room = view_.budget.host_free_blocks - std::ssize(view_.offloaded);
  for (size_t i = 0; i < fates_.size(); ++i) {
    const SequenceView& sequence = view_.running[i];
    if (sequence.service_class != kBe || sequence.decodes() || sequence.host_failures > 0 ||
        fates_[i] == Fate::kGone || sequence.computed_tokens < view_.budget.block_tokens) {
      continue;
    }
    room -= blocks_for(sequence.known_tokens);  // all of it will need a place there
    if (room < 0) {
      return;
    }
    write_through_.push_back(sequence.id);
  }
}

}  // namespace tandem
