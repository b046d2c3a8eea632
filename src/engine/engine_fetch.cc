// The part of Engine that brings cached prefixes back from the host, for sequences that wait to
// begin: a prefix that is copied need not be computed.
//
// Nothing is promised to the sequence: what has come is cached like anything else, and it finds it
// when it is admitted, which is mostly at once. So nobody holds blocks while he waits for more.
#include <algorithm>
#include <utility>

#include "engine/engine.h"

namespace tandem {
namespace {

// Those behind are looked at when they have moved up.
constexpr int kLookedAt = 64;

}  // namespace

void Engine::begin_fetches() {
  if (kv_.total_blocks(Tier::kHost) == 0 || waiting_.empty()) {
    return;
  }
  int64_t free = kv_.free_blocks();
  std::optional<int64_t> promised;
  auto places = static_cast<int64_t>(config_.max_running) - std::ssize(running_);
  int looked_at = 0;
  for (LiveSequence* sequence : waiting_) {
    if (++looked_at > kLookedAt || places <= 0) {
      return;
    }
    if (sequence->fetched != LiveSequence::Fetched::kNo) {
      continue;
    }
    // Blocks that it would take if it began now. Where they are not there, it could not begin, and
    // what was fetched for it might be gone when it can.
    const HostPrefix prefix = kv_.match_on_host(sequence->cacheable(), sequence->known_tokens());
    free -= kv_.blocks_for(sequence->known_tokens() + 1) - prefix.in_use;
    if (free < 0) {
      return;
    }
    --places;
    if (prefix.missing == 0) {
      continue;
    }
    promised = promised.has_value() ? promised : blocks_promised();
    if (free >= *promised && fetch_pays(*sequence, prefix)) {
      begin_fetch(*sequence, prefix);
    }
  }
}

// Blocks that prompts under way will still take.
int64_t Engine::blocks_promised() const {
  int64_t blocks = 0;
  for (const LiveSequence* sequence : running_) {
    blocks += std::max(kv_.blocks_for(sequence->known_tokens()) - sequence->kv.blocks(), 0);
  }
  return blocks;
}

// By the model as it was fitted: what it learns while serving would be another thing in a replay.
bool Engine::fetch_pays(const LiveSequence& sequence, const HostPrefix& prefix) const {
  if (step_times_ == nullptr || config_.from_host.nanos(1) <= 0) {
    return true;
  }
  const latency::StepTimeModel& model = step_times_->uncorrected();
  const auto prompt_from = [&](int32_t tokens) {
    latency::StepShape shape;
    shape.add_prefill(tokens, sequence.known_tokens() - tokens, 1);
    return model.step_time(shape);
  };
  const int32_t here = kv_.match(sequence.cacheable(), sequence.known_tokens()).tokens;
  const Nanos computing = prompt_from(here) - prompt_from(prefix.blocks * kv_.block_tokens());
  return config_.from_host.nanos(prefix.to_copy) < static_cast<double>(computing.count());
}

void Engine::begin_fetch(LiveSequence& sequence, const HostPrefix& prefix) {
  const std::span<const BlockHash> names =
      sequence.cacheable().first(static_cast<size_t>(prefix.blocks));
  std::optional<PrefixFetch> fetch = kv_.begin_fetch(names);
  if (!fetch.has_value()) {
    return;
  }
  sequence.fetched = LiveSequence::Fetched::kUnderWay;
  int64_t transfer = 0;
  if (fetch->copies.empty()) {
    kv_.fetch_copied(*fetch);
  } else {
    transfer = next_transfer_++;
    record_.prefix_blocks_fetched += std::ssize(fetch->copies);
    input_.transfers.push_back({transfer, TransferKind::kOnload, std::exchange(fetch->copies, {})});
  }
  fetches_.push_back({transfer, sequence.id, *std::move(fetch)});
}

bool Engine::fetch_copied(int64_t transfer) {
  const auto fetch = std::ranges::find(fetches_, transfer, &Fetch::transfer);
  if (fetch == fetches_.end()) {
    return false;
  }
  kv_.fetch_copied(fetch->prefix);
  fetch->transfer = 0;
  return true;
}

void Engine::settle_fetches() {
  const auto settled = [&](Fetch& fetch) {
    if (fetch.transfer != 0 || !kv_.fetch_ready(fetch.prefix)) {
      return false;
    }
    kv_.end_fetch(fetch.prefix);
    // It may have been cancelled meanwhile.
    if (const auto entry = sequences_.find(fetch.sequence); entry != sequences_.end()) {
      entry->second.fetched = LiveSequence::Fetched::kOnce;
    }
    return true;
  };
  std::erase_if(fetches_, settled);
}

}  // namespace tandem
