#include "exec/host_tier/hop_watch.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace tandem {

using piggyback::HopAnswer;
using piggyback::HopTask;

namespace {

void move_to(std::vector<BlockId>& from, std::vector<BlockId>& to) {
  to.insert(to.end(), from.begin(), from.end());
  from.clear();
}

}  // namespace

HopWatch::HopWatch(piggyback::HopCore& core, OffloadedTokens& tokens, Nanos patience,
                   int32_t block_tokens)
    : core_(core), tokens_(tokens), watchdog_({.age = patience}), block_tokens_(block_tokens) {}

// A check looks at every hop row.
bool HopWatch::due(Nanos now) {
  constexpr int kChecksPerPatience = 4;
  if (now - last_check_ < watchdog_.age() / kChecksPerPatience) {
    return false;
  }
  last_check_ = now;
  return true;
}

int64_t HopWatch::check(Nanos now, piggyback::AttentionHost& attention) {
  dropped_.clear();
  const int64_t given_up = watchdog_.check(now, core_, dropped_);
  for (const HopTask& task : dropped_) {
    attention.withdraw(task.hop, task.attempt);
  }
  return given_up;
}

// The sequence goes on without the worker, but what its kernel may still write to stays out of use:
// the hop row, which the core keeps, and the block of the token.
void HopWatch::check_lost(Nanos now) {
  newly_lost_.clear();
  watchdog_.check_lost(now, core_, newly_lost_);
  for (const HopTask& attempt : newly_lost_) {
    const BlockId block =
        tokens_.block(attempt.sequence, static_cast<size_t>(attempt.position / block_tokens_));
    tokens_.keep_tables(attempt.sequence);
    lost_.push_back({attempt, block});
    lost_blocks_.push_back(block);
    log::error(
        "a host attention worker has not come back from a kernel for a long time; its request "
        "goes on without it ({} lost now)",
        lost_.size());
  }
}

void HopWatch::find(const HopAnswer& answer) {
  const auto entry = std::ranges::find_if(lost_, [&](const Lost& lost) {
    return lost.attempt.hop == answer.hop && lost.attempt.attempt == answer.attempt;
  });
  if (entry != lost_.end()) {
    found_blocks_.push_back(entry->block);
    lost_.erase(entry);
    log::warn("a lost host attention worker has recovered ({} still lost)", lost_.size());
  }
}

void HopWatch::take_events(TierEvents& events) {
  move_to(lost_blocks_, events.lost_blocks);
  move_to(found_blocks_, events.found_blocks);
}

}  // namespace tandem
