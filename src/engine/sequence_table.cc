#include "engine/sequence_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace tandem {
namespace {

bool admitted_before(const LiveSequence* a, const LiveSequence* b) {
  return std::pair(a->admission, a->choice) < std::pair(b->admission, b->choice);
}

void insert_by_admission(std::vector<LiveSequence*>& list, LiveSequence& sequence) {
  list.insert(std::ranges::upper_bound(list, &sequence, admitted_before), &sequence);
}

}  // namespace

std::shared_ptr<RequestState> SequenceTable::new_request() {
  return std::allocate_shared<RequestState>(std::pmr::polymorphic_allocator<>(&memory_));
}

LiveSequence& SequenceTable::create(SequenceId id) {
  LiveSequence& sequence = sequences_[id];
  sequence.id = id;
  return sequence;
}

LiveSequence& SequenceTable::add(std::shared_ptr<RequestState> owner,
                                 std::vector<BlockHash> prompt_hashes) {
  LiveSequence& sequence = create(SequenceId{next_sequence_++});
  ++counts_[static_cast<size_t>(sequence.state.state())];
  // Room for a usual answer, so that sequences that began together do not all grow in one step.
  constexpr int32_t kUsualOutput = 1024;
  const std::vector<TokenId>& prompt = owner->request.prompt;
  sequence.tokens.reserve(
      prompt.size() +
      static_cast<size_t>(std::clamp(owner->request.sampling.max_tokens, 0, kUsualOutput)));
  sequence.tokens.assign(prompt.begin(), prompt.end());
  sequence.prompt_tokens = sequence.known_tokens();
  sequence.hashes = std::move(prompt_hashes);
  sequence.seed = owner->seed;
  by_request_[owner->id].push_back(sequence.id);
  for (int32_t choice = 1; choice < owner->request.n; ++choice) {
    sequence.forks.push_back(SequenceId{next_sequence_++});
  }
  sequence.choices = owner->request.n;
  sequence.set_owner(std::move(owner));
  waiting_.insert(sequence);
  return sequence;
}

void SequenceTable::make_forks(LiveSequence& parent, KvManager& kv) {
  std::vector<SequenceId>& ids = by_request_.at(parent.owner->id);
  auto after = std::ranges::find(running_, &parent) + 1;
  for (size_t i = 0; i < parent.forks.size(); ++i) {
    LiveSequence& fork = create(parent.forks[i]);
    fork.set_owner(parent.owner);
    fork.choice = static_cast<int32_t>(i) + 1;
    fork.state = parent.state;
    ++counts_[static_cast<size_t>(fork.state.state())];
    fork.tokens = parent.tokens;
    fork.prompt_tokens = parent.prompt_tokens;
    fork.computed_tokens = parent.computed_tokens;
    fork.kv = kv.fork(parent.kv, parent.computed_tokens);
    fork.hashes = parent.hashes;
    fork.seed = parent.owner->seed + i + 1;
    fork.cached_tokens = parent.cached_tokens;
    fork.admitted_before = true;
    fork.admission = parent.admission;
    fork.admitted = parent.admitted;
    fork.preemptions = parent.preemptions;
    fork.parked = parent.parked;
    ids.push_back(fork.id);
    after = running_.insert(after, &fork) + 1;
  }
  parent.forks.clear();
  parent.choices = 1;
}

LiveSequence* SequenceTable::find(SequenceId id) {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : &found->second;
}

const LiveSequence* SequenceTable::find(SequenceId id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : &found->second;
}

std::span<const SequenceId> SequenceTable::of_request(RequestId id) const {
  const auto found = by_request_.find(id);
  return found == by_request_.end() ? std::span<const SequenceId>() : found->second;
}

std::vector<RequestId> SequenceTable::requests() const {
  std::vector<RequestId> ids;
  ids.reserve(by_request_.size());
  for (const auto& [id, sequences] : by_request_) {
    ids.push_back(id);
  }
  std::ranges::sort(ids);
  return ids;
}

LiveSequence* SequenceTable::running_at(SequenceId id, size_t& place) const {
  if (place >= running_.size() || running_[place]->id != id) {
    const auto found = std::ranges::find(running_, id, &LiveSequence::id);
    if (found == running_.end()) {
      return nullptr;
    }
    place = static_cast<size_t>(found - running_.begin());
  }
  return running_[place++];
}

int32_t SequenceTable::places_left(int32_t max_running) const {
  int32_t places = max_running - static_cast<int32_t>(count(SequenceState::kOnloading));
  for (const LiveSequence* sequence : running_) {
    places -= sequence->choices;
  }
  return places;
}

void SequenceTable::change(LiveSequence& sequence, SequenceState state) {
  --counts_[static_cast<size_t>(sequence.state.state())];
  sequence.state.change_to(state);
  if (state == SequenceState::kFinishing && sequence.waits) {
    ended_waiting_.push_back(&sequence);
  }
  ++counts_[static_cast<size_t>(state)];
}

void SequenceTable::admit(LiveSequence& sequence) {
  waiting_.erase(sequence);
  running_.push_back(&sequence);
  if (!std::exchange(sequence.was_admitted, true)) {
    waiting_.count_served(sequence, sequence.prompt_tokens, 0);
  }
  sequence.admission = next_admission_++;
  change(sequence, SequenceState::kAdmitted);
}

void SequenceTable::offload(LiveSequence& sequence) {
  change(sequence, SequenceState::kOffloading);
  std::erase(running_, &sequence);
  insert_by_admission(offloaded_, sequence);
}

void SequenceTable::bring_back(LiveSequence& sequence) {
  std::erase(offloaded_, &sequence);
  insert_by_admission(running_, sequence);
}

void SequenceTable::requeue(LiveSequence& sequence) {
  std::erase(running_, &sequence);
  std::erase(offloaded_, &sequence);
  waiting_.insert(sequence);
}

void SequenceTable::remove_ended(KvManager& kv) {
  if (count(SequenceState::kFinishing) == 0) {
    return;
  }
  const auto ended = [](const LiveSequence* sequence) {
    return sequence->state.state() == SequenceState::kFinishing && !sequence->in_flight();
  };
  std::vector<LiveSequence*> gone;
  std::ranges::copy_if(offloaded_, std::back_inserter(gone), ended);
  std::ranges::copy_if(running_, std::back_inserter(gone), ended);
  std::ranges::copy_if(ended_waiting_, std::back_inserter(gone), ended);
  if (gone.empty()) {
    return;
  }
  std::erase_if(running_, ended);
  std::erase_if(offloaded_, ended);
  std::erase_if(ended_waiting_, ended);
  for (LiveSequence* sequence : gone) {
    if (sequence->waits) {
      waiting_.erase(*sequence);
    }
    if (sequence->kv.moving()) {
      kv.abort_transfer(sequence->kv);
    }
    kv.release(sequence->kv);
    change(*sequence, SequenceState::kDone);
    const auto entry = by_request_.find(sequence->owner->id);
    std::erase(entry->second, sequence->id);
    if (entry->second.empty()) {
      by_request_.erase(entry);
    }
    sequences_.erase(SequenceId{sequence->id});
  }
}

void SequenceTable::release_all(KvManager& kv) {
  for (auto& [id, sequence] : sequences_) {
    if (sequence.kv.moving()) {
      kv.copied(sequence.kv);
      kv.abort_transfer(sequence.kv);
    }
    kv.release(sequence.kv);
  }
}

Status SequenceTable::audit(std::vector<const SequenceKv*>& users) const {
  std::array<int64_t, kSequenceStates> counted{};
  for (const auto& [id, sequence] : sequences_) {
    users.push_back(&sequence.kv);
    ++counted[static_cast<size_t>(sequence.state.state())];
  }
  counted[static_cast<size_t>(SequenceState::kDone)] = count(SequenceState::kDone);
  if (counted != counts_ ||
      sequences_.size() != running_.size() + waiting_.size() + offloaded_.size()) {
    return Error{ErrorCode::kInternal,
                 fmt::format("sequences do not add up: {} known, {} running, {} waiting, {} "
                             "offloaded; counted by state {}, kept {}",
                             sequences_.size(), running_.size(), waiting_.size(), offloaded_.size(),
                             fmt::join(counted, " "), fmt::join(counts_, " ")),
                 ""};
  }
  return {};
}

}  // namespace tandem
