#include "node/replay_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

constexpr Nanos kPatience = std::chrono::seconds(30);
constexpr auto kNap = std::chrono::microseconds(50);
// Of steps that no policy has planned: a binder must not hold visitors back for the sake of
// residents that such a step does not have.
constexpr int64_t kUnplannedStep = -2;

}  // namespace

template <class Ready>
bool ReplayExecutor::wait_for(const Ready& ready, const std::string& what) {
  const Nanos end = clock_.now() + kPatience;
  while (!ready() && real_.failure() == nullptr) {
    if (clock_.now() > end) {
      problem_ = fmt::format("after step {}: {} is recorded, but does not happen", step_, what);
      return false;
    }
    std::this_thread::sleep_for(kNap);
  }
  return true;
}

// ---------------------------------------------------------------- steps

void ReplayExecutor::launch(const StepInput& input) {
  step_ = input.step;
  running_ = true;
  for (const OffloadedToken& token : input.entering) {
    under_way_.insert(token.sequence);
    tables_[token.sequence].assign(token.host_table.begin(), token.host_table.end());
  }
  real_.launch(input);
}

void ReplayExecutor::wait_for_step(StepResult& result) {
  while (!real_.poll(result) && real_.failure() == nullptr) {
    std::this_thread::sleep_for(kNap);
  }
}

void ReplayExecutor::hold(StepResult& result) {
  for (SampledToken& visitor : result.visitors) {
    under_way_.erase(visitor.sequence);
    const SequenceId sequence = visitor.sequence;
    held_.insert_or_assign(sequence, std::move(visitor));
  }
  result.visitors.clear();
}

bool ReplayExecutor::poll(StepResult& result) {
  if (!running_) {
    return false;
  }
  running_ = false;
  wait_for_step(result);
  hold(result);
  const RecordedCounts counted = std::exchange(in_step_, {});
  result.visits = counted.visits;
  result.second = counted.second;
  result.held = counted.held;
  result.host = counted.host;
  result.ready = ready_in_step_;
  for (const SequenceId sequence : std::exchange(visitors_, {})) {
    // Steps of visitors alone, until its token is through.
    while (!held_.contains(sequence) && under_way_.contains(sequence) &&
           real_.failure() == nullptr) {
      StepInput more;
      more.step = kUnplannedStep;
      real_.launch(more);
      StepResult visitors;
      wait_for_step(visitors);
      hold(visitors);
      pump();
      if (left_.contains(sequence)) {
        under_way_.erase(sequence);
      }
    }
    const auto entry = held_.find(sequence);
    if (entry == held_.end()) {
      problem_ = fmt::format("step {}: a token of sequence {} is recorded, but none is under way",
                             step_, raw(sequence));
      break;
    }
    result.visitors.push_back(std::move(entry->second));
    held_.erase(entry);
  }
  return true;
}

// ---------------------------------------------------------------- tiers

void ReplayExecutor::leave(SequenceId offloaded) {
  under_way_.erase(offloaded);
  held_.erase(offloaded);
  leaving_.insert(offloaded);
  real_.leave(offloaded);
}

void ReplayExecutor::pump() {
  TierEvents events = real_.take_tier_events();
  transfers_done_.insert(events.transfers_done.begin(), events.transfers_done.end());
  left_.insert(events.left.begin(), events.left.end());
  left_.insert(events.failed.begin(), events.failed.end());
}

TierEvents ReplayExecutor::take_tier_events() {
  pump();
  TierEvents out;
  TierEvents expected = std::exchange(expected_, {});
  for (const int64_t id : expected.transfers_done) {
    const auto ready = [&] {
      pump();
      return transfers_done_.erase(id) > 0;
    };
    if (!wait_for(ready, fmt::format("the end of copy {}", id))) {
      return out;
    }
    out.transfers_done.push_back(id);
  }
  expected_.lost_blocks = std::move(expected.lost_blocks);
  expected_.found_blocks = std::move(expected.found_blocks);
  hand_over_blocks();
  std::swap(out.lost_blocks, expected_.lost_blocks);
  std::swap(out.found_blocks, expected_.found_blocks);
  for (const SequenceId sequence : expected.left) {
    const auto ready = [&] {
      pump();
      return left_.erase(sequence) > 0;
    };
    if (!leaving_.contains(sequence) ||
        !wait_for(ready, fmt::format("the leaving of sequence {}", raw(sequence)))) {
      problem_ =
          fmt::format("after step {}: sequence {} is recorded to have left", step_, raw(sequence));
      return out;
    }
    leaving_.erase(sequence);
    tables_.erase(sequence);
    out.left.push_back(sequence);
  }
  for (const SequenceId sequence : expected.failed) {
    hand_over_failed(sequence);
    if (!problem_.empty()) {
      return out;
    }
    out.failed.push_back(sequence);
  }
  return out;
}

// The host does not fail now: the sequence leaves as if it had.
void ReplayExecutor::hand_over_failed(SequenceId sequence) {
  if (!tables_.contains(sequence)) {
    problem_ = fmt::format(
        "after step {}: the host is recorded to have failed sequence {}, which "
        "has not entered",
        step_, raw(sequence));
    return;
  }
  under_way_.erase(sequence);
  held_.erase(sequence);
  if (!leaving_.contains(sequence) && !left_.contains(sequence)) {
    real_.leave(sequence);
  }
  const auto ready = [&] {
    pump();
    return left_.erase(sequence) > 0;
  };
  static_cast<void>(wait_for(ready, fmt::format("the leaving of sequence {}", raw(sequence))));
  leaving_.erase(sequence);
  tables_.erase(sequence);
}

// Only blocks that somebody under way has can be lost, and only lost ones found.
void ReplayExecutor::hand_over_blocks() {
  const auto known = [&](BlockId block) {
    return std::ranges::any_of(tables_, [&](const auto& entry) {
      return std::ranges::find(entry.second, block) != entry.second.end();
    });
  };
  for (const BlockId block : expected_.lost_blocks) {
    if (!known(block)) {
      problem_ = fmt::format("after step {}: block {} is recorded as lost, but nobody has it",
                             step_, raw(block));
    }
    lost_blocks_.insert(block);
  }
  for (const BlockId block : expected_.found_blocks) {
    const auto entry = lost_blocks_.find(block);
    if (entry == lost_blocks_.end()) {
      problem_ = fmt::format("after step {}: block {} is recorded as found, but was not lost",
                             step_, raw(block));
    } else {
      lost_blocks_.erase(entry);
    }
  }
  if (!problem_.empty()) {
    expected_.lost_blocks.clear();
    expected_.found_blocks.clear();
  }
}

}  // namespace tandem
