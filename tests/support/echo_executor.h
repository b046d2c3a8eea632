// A stand-in for a model in virtual time: a StepExecutor whose "KV" is the token ids themselves,
// stored block by block. A token is drawn by hashing what the block table leads to, so a wrong
// block, a missed copy or a stale cache changes the text at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "plan/step.h"
#include "support/echo_host.h"

namespace tandem::testing {

struct EchoOptions {
  ExecutorLimits limits{
      .max_batched_tokens = 64, .max_logit_rows = 16, .total_blocks = 32, .block_tokens = 4};
  int32_t vocabulary = 1000;
  // A token is drawn from so many before it: few are quick, where texts are not looked at.
  int32_t context_tokens = std::numeric_limits<int32_t>::max();
  Nanos step_fixed{std::chrono::milliseconds(1)};
  Nanos per_token{std::chrono::microseconds(10)};
  Nanos per_attended{0};  // for each token that a row attends to, its own included
  EchoHostOptions host;   // where limits.host_blocks > 0
};

// The token that follows `tokens` for a sampler with `seed`: the oracle for every test.
inline TokenId echo_next(std::span<const TokenId> tokens, uint64_t seed, int32_t vocabulary) {
  uint64_t hash = 1469598103934665603ULL ^ seed;
  for (const TokenId token : tokens) {
    hash = (hash ^ static_cast<uint64_t>(token)) * 1099511628211ULL;
  }
  return static_cast<TokenId>((hash >> 17) % static_cast<uint64_t>(vocabulary));
}

class EchoExecutor final : public StepExecutor {
 public:
  EchoExecutor(const EchoOptions& options, const Clock& clock)
      : options_(options),
        clock_(clock),
        kv_(static_cast<size_t>(options.limits.total_blocks * options.limits.block_tokens), -1),
        host_kv_(static_cast<size_t>(options.limits.host_blocks * options.limits.block_tokens), -1),
        host_(options.host, options.limits, kv_, host_kv_) {}
  EchoExecutor(const EchoExecutor&) = delete;
  EchoExecutor& operator=(const EchoExecutor&) = delete;

  [[nodiscard]] const ExecutorLimits& limits() const override { return options_.limits; }

  void launch(const StepInput& input) override {
    CHECK(!result_.has_value(), "a step is still in flight");
    host_.run_until(clock_.now());
    for (const BlockCopy& copy : input.copies) {
      for (int32_t slot = 0; slot < options_.limits.block_tokens; ++slot) {
        at(copy.target, slot) = at(copy.source, slot);
      }
    }
    int32_t tokens = 0;
    int64_t attended = 0;
    result_ = StepResult{.step = input.step, .samples = {}, .scored = {}, .visitors = {}};
    check_straight(input);
    for (const StepSlice& slice : input.slices) {
      write(slice);
      tokens += static_cast<int32_t>(slice.tokens.size());
      for (size_t row = 0; row < slice.tokens.size(); ++row) {
        attended += slice.first_position + static_cast<int64_t>(row) + 1;
      }
      for (const TokenId token : slice.scored) {  // a score tells whose it is
        result_->scored.push_back({.logprob = -static_cast<float>(token), .rank = 1, .top = {}});
      }
    }
    for (const StepSlice& slice : input.slices) {
      sample(slice);
    }
    CHECK(tokens <= options_.limits.max_batched_tokens, "{} tokens in a step", tokens);
    CHECK(static_cast<int32_t>(result_->samples.size()) <= options_.limits.max_logit_rows,
          "too many logit rows");
    for (const TierTransfer& transfer : input.transfers) {
      host_.begin(transfer, clock_.now());
    }
    for (const OffloadedToken& token : input.entering) {
      host_.enter(token, clock_.now());
    }
    ready_at_ = clock_.now() + options_.step_fixed + options_.per_token * tokens +
                options_.per_attended * attended;
    visitors_only_ = input.slices.empty();
    if (input.slices.empty()) {
      // Visitors only: it waits for the first of them, or for a tier event. Copies only: it ends at
      // once.
      ready_at_ =
          host_.next_token().has_value() ? std::max(*host_.next_token(), ready_at_) : clock_.now();
      ready_at_ =
          std::min(ready_at_, std::max(host_.next_event().value_or(ready_at_), clock_.now()));
      CHECK(host_.next_token().has_value() || !input.transfers.empty(), "step {} is empty",
            input.step);
    }
    ++steps_;
    max_tokens_ = std::max(max_tokens_, tokens);
  }

  bool poll(StepResult& result) override {
    if (!result_.has_value() || clock_.now() < ready_at_) {
      return false;
    }
    host_.run_until(ready_at_);
    result_->visitors = host_.take_samples(
        ready_at_, options_.limits.max_logit_rows - static_cast<int32_t>(result_->samples.size()),
        [&](const std::vector<TokenId>& context, const SampleSpec& spec) {
          return draw(context, spec);
        });
    result = std::move(*result_);
    result_.reset();
    return true;
  }

  void wait_no_longer() override {
    if (result_.has_value() && result_->samples.empty() && visitors_only_) {
      ready_at_ = std::min(ready_at_, clock_.now());
    }
  }

  void leave(SequenceId offloaded) override {
    CHECK(!result_.has_value(), "sequence {} leaves while a step runs", raw(offloaded));
    host_.leave(offloaded, clock_.now());
  }
  [[nodiscard]] int32_t next_stage(SequenceId offloaded) const override {
    return host_.next_stage(offloaded, options_.limits.hops_per_token, clock_.now());
  }
  TierEvents take_tier_events() override {
    host_.run_until(clock_.now());
    return host_.take_events();
  }

  // When something happens next: the step in flight ends, or the tiers report.
  [[nodiscard]] Nanos next_event() const {
    CHECK(result_.has_value() || host_.next_event().has_value(), "nothing is in flight");
    return result_.has_value() ? ready_at_ : *host_.next_event();
  }
  [[nodiscard]] const EchoHost& host() const { return host_; }
  [[nodiscard]] Nanos ready_at() const { return ready_at_; }
  [[nodiscard]] int64_t steps() const { return steps_; }
  [[nodiscard]] int32_t most_tokens_in_a_step() const { return max_tokens_; }

 private:
  TokenId& at(BlockId block, int32_t slot, Tier tier = Tier::kAccelerator) {
    std::vector<TokenId>& kv = tier == Tier::kHost ? host_kv_ : kv_;
    return kv.at(static_cast<size_t>(raw(block) * options_.limits.block_tokens + slot));
  }

  // Slices that go straight to the host are whole, stand last, and fit in a staging layer.
  void check_straight(const StepInput& input) const {
    int64_t blocks = 0;
    for (const StepSlice& slice : input.slices) {
      const bool straight = slice.tier == Tier::kHost;
      blocks += straight ? std::ssize(slice.block_table) : 0;
      CHECK(straight || blocks == 0, "slices that go straight to the host must come last");
      CHECK(!straight || (slice.first_position == 0 && slice.samples.size() == 1),
            "a part of a prompt goes straight to the host");
    }
    CHECK(blocks <= options_.limits.staging_blocks, "{} of {} blocks of a staging layer", blocks,
          options_.limits.staging_blocks);
    CHECK(blocks == 0 || std::ssize(input.slices) <= options_.limits.max_logit_rows, "{} slices",
          input.slices.size());
  }

  void write(const StepSlice& slice) {
    for (size_t i = 0; i < slice.tokens.size(); ++i) {
      const int32_t position = slice.first_position + static_cast<int32_t>(i);
      at(slice.block_table[static_cast<size_t>(position / options_.limits.block_tokens)],
         position % options_.limits.block_tokens, slice.tier) = slice.tokens[i];
    }
  }

  void sample(const StepSlice& slice) {
    std::vector<TokenId> context;
    const int32_t known = slice.first_position + static_cast<int32_t>(slice.tokens.size());
    const int32_t first =
        slice.samples.empty() ? known : std::max(known - options_.context_tokens, 0);
    context.reserve(static_cast<size_t>(known - first));
    for (int32_t position = first; position < known; ++position) {
      context.push_back(
          at(slice.block_table[static_cast<size_t>(position / options_.limits.block_tokens)],
             position % options_.limits.block_tokens, slice.tier));
    }
    for (const SampleSpec& spec : slice.samples) {
      result_->samples.push_back({spec.sequence, draw(context, spec), nullptr});
    }
  }

  [[nodiscard]] TokenId draw(const std::vector<TokenId>& context, const SampleSpec& spec) const {
    TokenId token = echo_next(context, spec.seed, options_.vocabulary);
    while (std::ranges::count(spec.banned, token) > 0) {
      ++token;
    }
    return token;
  }

  EchoOptions options_;
  const Clock& clock_;
  std::vector<TokenId> kv_;
  std::vector<TokenId> host_kv_;
  EchoHost host_;
  std::optional<StepResult> result_;
  Nanos ready_at_{0};
  bool visitors_only_ = false;
  int64_t steps_ = 0;
  int32_t max_tokens_ = 0;
};

}  // namespace tandem::testing
