// The host tier of the echo executor in virtual time: copies, hops, leavings and failures that end
// after random delays and in any order. Whatever is in flight really writes when it ends, so blocks
// that were given away too early change somebody's text.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "plan/step.h"

namespace tandem::testing {

struct EchoHostOptions {
  uint64_t seed = 1;
  Nanos max_copy{std::chrono::milliseconds(3)};
  Nanos max_hops{std::chrono::milliseconds(20)};  // of a token, from entry to its last stage
  int failures_per_thousand = 0;                  // of the tokens that enter
  bool frozen = false;                            // no hop ends before its sequence leaves
  // Of the failures: a worker is left behind, which writes to the token's block much later.
  int lost_per_thousand = 0;
  Nanos longest_lost{std::chrono::milliseconds(100)};
};

class EchoHost {
 public:
  // `accelerator` and `host` are the slots of the two tiers.
  EchoHost(const EchoHostOptions& options, const ExecutorLimits& limits,
           std::vector<TokenId>& accelerator, std::vector<TokenId>& host)
      : options_(options),
        block_tokens_(limits.block_tokens),
        places_(limits.offloaded_sequences),
        accelerator_(accelerator),
        host_(host),
        random_(options.seed) {}

  void begin(const TierTransfer& transfer, Nanos now) {
    CHECK(!transfer.blocks.empty() && transfer.id > last_transfer_, "transfer {} after {}",
          transfer.id, last_transfer_);
    last_transfer_ = transfer.id;
    const bool offload = transfer.kind == TransferKind::kOffload;
    for (const TierTransfer::Pair& pair : transfer.blocks) {
      fill(offload ? host_ : accelerator_, offload ? pair.host : pair.device, -9);
    }
    moved_blocks_.push_back(std::ssize(transfer.blocks));
    copies_.push_back({transfer, now + random_delay(options_.max_copy)});
    ++transfers_;
  }

  void enter(const OffloadedToken& token, Nanos now) {
    One& one = ones_[token.sequence];
    CHECK(!one.busy && !one.leaving, "sequence {} enters twice", raw(token.sequence));
    CHECK(static_cast<int32_t>(ones_.size()) <= places_, "more than {} offloaded sequences",
          places_);
    one.busy = true;
    one.fails = static_cast<int>(random_() % 1000) < options_.failures_per_thousand;
    one.token = token.token;
    one.position = token.position;
    one.table.assign(token.host_table.begin(), token.host_table.end());
    CHECK(static_cast<int32_t>(one.table.size()) * block_tokens_ > token.position,
          "a table of {} blocks for position {}", one.table.size(), token.position);
    one.sample = token.sample;
    one.began = now;
    one.ends = now + (options_.frozen ? kNever : random_delay(options_.max_hops));
    ++entered_;
  }

  void leave(SequenceId sequence, Nanos now) {
    One& one = ones_.at(sequence);
    CHECK(!one.leaving, "sequence {} leaves twice", raw(sequence));
    one.leaving = true;
    one.ends = std::max(one.busy && !options_.frozen ? one.ends : now,
                        now + random_delay(options_.max_copy));
  }

  // By the share of its time that has gone, as if the host attended for `hops` layers evenly.
  [[nodiscard]] int32_t next_stage(SequenceId sequence, int32_t hops, Nanos now) const {
    const auto entry = ones_.find(sequence);
    if (entry == ones_.end() || !entry->second.busy || entry->second.leaving) {
      return -1;
    }
    const One& one = entry->second;
    const int64_t whole = std::max<int64_t>((one.ends - one.began).count(), 1);
    return static_cast<int32_t>(
        std::clamp<int64_t>((now - one.began).count() * hops / whole, 0, hops));
  }

  // Everything that ends until `now`, in the order of time.
  void run_until(Nanos now) {
    while (const std::optional<Nanos> next = next_event()) {
      if (*next > now) {
        return;
      }
      end_copies(*next);
      end_sequences(*next);
      end_lost(*next);
    }
  }

  // The next copy, leaving or failure; hops that succeed are not events.
  [[nodiscard]] std::optional<Nanos> next_event() const {
    std::optional<Nanos> next;
    const auto consider = [&](Nanos at) { next = next.has_value() ? std::min(*next, at) : at; };
    for (const Copy& copy : copies_) {
      consider(copy.ends);
    }
    for (const Lost& lost : lost_) {
      consider(lost.ends);
    }
    for (const auto& [id, one] : ones_) {
      if (one.leaving || (one.busy && one.fails)) {
        consider(one.ends);
      }
    }
    return next;
  }

  // When the first token under way ends, one way or the other.
  [[nodiscard]] std::optional<Nanos> next_token() const {
    std::optional<Nanos> next;
    for (const auto& [id, one] : ones_) {
      if (one.busy && !one.leaving) {
        next = next.has_value() ? std::min(*next, one.ends) : one.ends;
      }
    }
    return next;
  }

  // Samples of tokens whose hops have ended until `now`, at most `limit`. `next(context, spec)`
  // draws.
  template <class Next>
  std::vector<SampledToken> take_samples(Nanos now, int32_t limit, const Next& next) {
    std::vector<SequenceId> ready;
    for (const auto& [id, one] : ones_) {
      if (one.busy && !one.leaving && !one.fails && one.ends <= now) {
        ready.push_back(id);
      }
    }
    std::shuffle(ready.begin(), ready.end(), random_);
    ready.resize(std::min(ready.size(), static_cast<size_t>(std::max(limit, 0))));
    std::vector<SampledToken> samples;
    for (const SequenceId id : ready) {
      One& one = ones_.at(id);
      slot(one, one.position) = one.token;
      std::vector<TokenId> context;
      for (int32_t position = 0; position <= one.position; ++position) {
        context.push_back(slot(one, position));
      }
      CHECK(
          one.sample.sequence == id && one.sample.position == one.position + 1 &&
              std::ssize(one.sample.prompt) + std::ssize(one.sample.output) == one.sample.position,
          "the sample of sequence {} is not of its position", raw(id));
      samples.push_back({id, next(context, one.sample), nullptr});
      one.busy = false;
    }
    return samples;
  }

  TierEvents take_events() { return std::exchange(events_, {}); }
  [[nodiscard]] bool drained() const { return copies_.empty() && ones_.empty(); }
  [[nodiscard]] int64_t transfers() const { return transfers_; }
  [[nodiscard]] const std::vector<int64_t>& moved_blocks() const { return moved_blocks_; }
  [[nodiscard]] int64_t entered() const { return entered_; }
  [[nodiscard]] int64_t failures() const { return failures_; }
  [[nodiscard]] int64_t workers_lost() const { return workers_lost_; }

 private:
  static constexpr Nanos kNever = std::chrono::hours(24);
  struct Copy {
    TierTransfer transfer;
    Nanos ends{0};
  };
  struct Lost {
    BlockId block{};
    int32_t slot = 0;
    Nanos ends{0};
  };
  struct One {
    bool busy = false;  // a token is under way
    bool leaving = false;
    bool fails = false;
    TokenId token = 0;
    int32_t position = 0;
    std::vector<BlockId> table;
    SampleSpec sample;
    Nanos began{0};
    Nanos ends{0};
  };

  Nanos random_delay(Nanos most) {
    return Nanos{static_cast<int64_t>(random_() % static_cast<uint64_t>(most.count() + 1))};
  }
  TokenId& slot(const One& one, int32_t position) {
    const BlockId block = one.table[static_cast<size_t>(position / block_tokens_)];
    return host_.at(static_cast<size_t>(raw(block) * block_tokens_ + position % block_tokens_));
  }
  void fill(std::vector<TokenId>& slots, BlockId block, TokenId value) const {
    for (int32_t i = 0; i < block_tokens_; ++i) {
      slots.at(static_cast<size_t>(raw(block) * block_tokens_ + i)) = value;
    }
  }

  void end_copies(Nanos at) {
    for (const Copy& copy : copies_) {
      if (copy.ends > at) {
        continue;
      }
      for (const TierTransfer::Pair& pair : copy.transfer.blocks) {
        for (int32_t i = 0; i < block_tokens_; ++i) {
          TokenId& here =
              accelerator_.at(static_cast<size_t>(raw(pair.device) * block_tokens_ + i));
          TokenId& there = host_.at(static_cast<size_t>(raw(pair.host) * block_tokens_ + i));
          (copy.transfer.kind == TransferKind::kOffload ? there : here) =
              copy.transfer.kind == TransferKind::kOffload ? here : there;
        }
      }
      events_.transfers_done.push_back(copy.transfer.id);
    }
    std::erase_if(copies_, [&](const Copy& copy) { return copy.ends <= at; });
  }

  void end_sequences(Nanos at) {
    for (auto entry = ones_.begin(); entry != ones_.end();) {
      One& one = entry->second;
      const bool failed = one.busy && one.fails;
      if (one.ends > at || !(one.leaving || failed)) {
        ++entry;
        continue;
      }
      if (one.busy) {
        slot(one, one.position) = -7;  // the hop that was out still writes
      }
      failures_ += failed ? 1 : 0;
      if (failed && static_cast<int>(random_() % 1000) < options_.lost_per_thousand) {
        const BlockId block = one.table[static_cast<size_t>(one.position / block_tokens_)];
        lost_.push_back(
            {block, one.position % block_tokens_, at + random_delay(options_.longest_lost)});
        events_.lost_blocks.push_back(block);
        ++workers_lost_;
      }
      (failed ? events_.failed : events_.left).push_back(entry->first);
      entry = ones_.erase(entry);
    }
  }

  void end_lost(Nanos at) {
    for (const Lost& lost : lost_) {
      if (lost.ends <= at) {
        host_.at(static_cast<size_t>(raw(lost.block) * block_tokens_ + lost.slot)) = -8;
        events_.found_blocks.push_back(lost.block);
      }
    }
    std::erase_if(lost_, [&](const Lost& lost) { return lost.ends <= at; });
  }

  EchoHostOptions options_;
  int32_t block_tokens_;
  int32_t places_;
  std::vector<TokenId>& accelerator_;
  std::vector<TokenId>& host_;
  std::mt19937_64 random_;
  std::vector<Copy> copies_;
  std::map<SequenceId, One> ones_;  // that entered and have not left
  TierEvents events_;
  int64_t last_transfer_ = 0;
  std::vector<int64_t> moved_blocks_;  // by transfer
  int64_t transfers_ = 0;
  int64_t entered_ = 0;
  int64_t failures_ = 0;
  std::vector<Lost> lost_;
  int64_t workers_lost_ = 0;
};

}  // namespace tandem::testing
