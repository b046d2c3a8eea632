#include "engine/prefix_fetcher.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

// Sequences further back are considered when they have moved up.
constexpr int kMaxConsidered = 64;

}  // namespace

void PrefixFetcher::begin() {
  if (kv_.total_blocks(Tier::kHost) == 0 || table_.waiting().empty()) {
    return;
  }
  int64_t free = kv_.free_blocks();
  std::optional<int64_t> promised;
  auto places = static_cast<int64_t>(options_.max_running) - std::ssize(table_.running());
  int considered = 0;
  for (LiveSequence* sequence : table_.waiting()) {
    if (++considered > kMaxConsidered || places <= 0) {
      return;
    }
    if (sequence->fetched != LiveSequence::Fetched::kNo) {
      continue;
    }
    // Blocks that it would take if it began now. Without them it could not begin, and what was
    // fetched for it might be evicted before it can.
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
    if (free >= *promised && pays(*sequence, prefix)) {
      begin_one(*sequence, prefix);
    }
  }
}

// Blocks that prompts in progress will still take.
int64_t PrefixFetcher::blocks_promised() const {
  int64_t blocks = 0;
  for (const LiveSequence* sequence : table_.running()) {
    blocks += std::max(kv_.blocks_for(sequence->known_tokens()) - sequence->kv.blocks(), 0);
  }
  return blocks;
}

// By the model as it was fitted: what it learns while serving would differ in a replay.
bool PrefixFetcher::pays(const LiveSequence& sequence, const HostPrefix& prefix) const {
  if (options_.step_times == nullptr || options_.from_host.nanos(1) <= 0) {
    return true;
  }
  const latency::StepTimeModel& model = options_.step_times->uncorrected();
  const auto prompt_from = [&](int32_t tokens) {
    latency::StepShape shape;
    shape.add_prefill(tokens, sequence.known_tokens() - tokens, 1);
    return model.step_time(shape);
  };
  const int32_t here = kv_.match(sequence.cacheable(), sequence.known_tokens()).tokens;
  const Nanos computing = prompt_from(here) - prompt_from(prefix.blocks * kv_.block_tokens());
  return options_.from_host.nanos(prefix.to_copy) < static_cast<double>(computing.count());
}

void PrefixFetcher::begin_one(LiveSequence& sequence, const HostPrefix& prefix) {
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
    transfer = step_.next_transfer++;
    step_.record.prefix_blocks_fetched += std::ssize(fetch->copies);
    step_.input.transfers.push_back(
        {transfer, TransferKind::kOnload, std::exchange(fetch->copies, {})});
  }
  fetches_.push_back({transfer, sequence.id, *std::move(fetch)});
}

bool PrefixFetcher::copied(int64_t transfer) {
  const auto fetch = std::ranges::find(fetches_, transfer, &Fetch::transfer);
  if (fetch == fetches_.end()) {
    return false;
  }
  kv_.fetch_copied(fetch->prefix);
  fetch->transfer = 0;
  return true;
}

void PrefixFetcher::settle() {
  const auto settled = [&](Fetch& fetch) {
    if (fetch.transfer != 0 || !kv_.fetch_ready(fetch.prefix)) {
      return false;
    }
    kv_.end_fetch(fetch.prefix);
    // It may have been cancelled meanwhile.
    if (LiveSequence* sequence = table_.find(fetch.sequence)) {
      sequence->fetched = LiveSequence::Fetched::kOnce;
    }
    return true;
  };
  std::erase_if(fetches_, settled);
}

void PrefixFetcher::release_all() {
  for (Fetch& fetch : fetches_) {
    kv_.fetch_copied(fetch.prefix);
    kv_.end_fetch(fetch.prefix);
  }
  fetches_.clear();
}

void PrefixFetcher::audit(std::vector<const SequenceKv*>& users) const {
  for (const Fetch& fetch : fetches_) {
    users.push_back(&fetch.prefix.there);
    users.push_back(&fetch.prefix.coming);
  }
}

}  // namespace tandem
