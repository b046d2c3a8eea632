// What an executor is given for one step, and what it gives back. Plain data; spans borrow from the
// engine until launch returns.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/host_work.h"
#include "base/ids.h"
#include "base/result.h"
#include "request/request.h"
#include "request/sampling_params.h"

namespace tandem {

// One row of logits to sample from, for one sequence.
struct SampleSpec {
  SequenceId sequence{};
  const SamplingParams* params = nullptr;
  uint64_t seed = 0;                // this sequence's own
  int64_t position = 0;             // of the token to be drawn: prompt + output tokens so far
  std::span<const TokenId> prompt;  // for the repetition penalty
  std::span<const TokenId> output;  // so far
  std::span<const TokenId> banned;  // stop ids while output < min_tokens
};

// Where the KV of a sequence lies. Block ids of the two tiers count separately; the layout of a
// block is the same on both.
enum class Tier : uint8_t { kAccelerator, kHost };
inline constexpr int kTiers = 2;

// Consecutive tokens of one sequence computed in this step.
struct StepSlice {
  SequenceId sequence{};
  std::span<const TokenId> tokens;
  int32_t first_position = 0;
  std::span<const BlockId> block_table;  // covers first_position + tokens.size()
  std::span<const SampleSpec>
      samples;  // drawn from the last token's logits; empty inside a prompt; several when n > 1
  // The tokens that follow the slice's rows 0, 1, ..: how likely each was is reported. Mostly
  // empty.
  std::span<const TokenId> scored;
  int32_t scored_top = 0;  // with how many of the most likely ones
  // The tier of the block table. kHost: a prompt that goes straight to the host. The slice has all
  // of its tokens so far, its KV takes no blocks of the accelerator, and it is on the host when the
  // step has ended. Such slices come last; see ExecutorLimits::staging_blocks.
  Tier tier = Tier::kAccelerator;
};

struct BlockCopy {
  BlockId source{};
  BlockId target{};
};

enum class TransferKind : uint8_t { kOffload, kOnload };

// The copy of one sequence's blocks from one tier to the other. Runs beside the steps, and begins
// when the steps launched before are done. Until it is reported as done its blocks belong to it:
// nobody writes the sources, nobody touches the targets.
struct TierTransfer {
  struct Pair {
    BlockId device{};
    BlockId host{};
  };
  int64_t id = 0;  // the engine's, rising
  TransferKind kind = TransferKind::kOffload;
  std::vector<Pair> blocks;
};

// The next token of a sequence whose KV is on the host: it visits the stages of this and later
// steps one by one, and its attention runs on the host between them. One at a time per sequence.
struct OffloadedToken {
  SequenceId sequence{};
  TokenId token = 0;
  int32_t position = 0;
  int32_t lane = 0;                     // 0 or 1, as in LaneMove; matters in steps with lanes
  std::span<const BlockId> host_table;  // covers position + 1; copied by the executor
  // Always exactly one row. What it points to stays valid until the token's sample or the
  // sequence's leaving is reported.
  SampleSpec sample;
};

// A token under way on the host is in this lane from now on, at its stage.
struct LaneMove {
  SequenceId sequence{};
  int32_t lane = 0;  // 0 or 1
};

// How the visitors of a step are taken along.
enum class StepMode : uint8_t {
  // Groups of stages; whoever is ready when a group is launched may join.
  kGroups,
  // Two lanes, launched in turn, stage by stage: the residents' with the offloaded tokens of the
  // first lane, and the other offloaded ones. A lane's stage may wait for its visitors, so that
  // every token goes through all stages in one step (NEO 3.1).
  kLanes,
};

struct StepInput {
  int64_t step = 0;
  StepMode mode = StepMode::kGroups;
  std::vector<BlockCopy> copies;  // on the accelerator, before anything else
  std::vector<StepSlice> slices;
  std::vector<TierTransfer> transfers;
  std::vector<LaneMove> lane_moves;      // before anything enters
  std::vector<OffloadedToken> entering;  // at stage 0, before the step's first bind
};

struct SampledToken {
  SequenceId sequence{};
  TokenId token = 0;                      // -1: the logits of this row were not finite
  std::unique_ptr<LogprobInfo> logprobs;  // null unless asked for
};

// What a step with lanes did in the second one, which has launches of its own.
struct SecondLane {
  int64_t visits = 0;  // rows at the stages before the last
  int32_t stages = 0;  // of these, launched for it
  int32_t logits = 0;  // rows at the last stage
};

struct StepResult {
  int64_t step = 0;
  std::vector<SampledToken> samples;  // in the order of slices and their samples
  std::vector<LogprobInfo> scored;    // in the order of slices and their rows
  // Offloaded tokens that went through the last stage in this step, in any order.
  std::vector<SampledToken> visitors;
  int64_t visits = 0;  // rows of offloaded tokens, at all stages
  // Over all binds of the step, the visitors that could have joined, each counted at every stage at
  // which it could; -1: the executor does not count them.
  int64_t ready = -1;
  SecondLane second{};
  HostWork host{};  // since the step before
  // The accelerator had nothing queued, because both lanes waited for the host, or because KV of
  // prompts that go straight to the host was still being copied.
  Nanos held{0};
};

// What happened between the tiers, beside the steps.
struct TierEvents {
  std::vector<int64_t> transfers_done;
  std::vector<SequenceId> left;    // after leave: nothing of the sequence is in flight any more
  std::vector<SequenceId> failed;  // the host could not do its part, retries are used up: the
                                   // token must be computed elsewhere; counts as left
  // Host blocks that a worker which hangs may still write to: what is in them stays good, but once
  // free they must not be used for anything else. One entry for each worker and block; taken back
  // when the worker comes back. To be regarded before `left` and `failed`.
  std::vector<BlockId> lost_blocks;
  std::vector<BlockId> found_blocks;
};

// Sums since the start of what went on between the tiers; all 0 where there is one.
struct TierCounts {
  int64_t visits = 0;         // rows of offloaded tokens at all stages
  int64_t hops = 0;           // of these, those whose attention went to the host
  int64_t doubted = 0;        // attempts on the host that failed or took too long
  int64_t bytes_to_host = 0;  // of hops
  int64_t bytes_from_host = 0;
  int64_t offloaded_bytes = 0;  // of KV blocks
  int64_t onloaded_bytes = 0;
  int64_t attended_bytes = 0;  // of K and V read by the host's workers
  int64_t attended_rows = 0;   // for which they did
  Nanos attention_time{0};     // that they worked, all together
  int64_t hops_in_flight = 0;  // now
  int64_t workers_lost = 0;    // now: hang inside a kernel
  Nanos returning_time{0};     // that results were on their way back
  int32_t workers = 0;
  int32_t layers = 0;
  int64_t attended_token_bytes = 0;  // K and V of one token in one layer
};

struct ExecutorLimits {
  int32_t max_batched_tokens = 0;  // rows of a step
  int32_t max_logit_rows = 0;      // samples of a step
  int64_t total_blocks = 0;
  int32_t block_tokens = 0;
  int64_t host_blocks = 0;          // 0: one tier, nothing can be offloaded
  int32_t offloaded_sequences = 0;  // that may have entered and not left
  int32_t hops_per_token = 0;       // of an offloaded token: one a layer
  // Blocks of a staging layer, which the prompts that go straight to the host in a step share.
  // 0: no prompt may.
  int32_t staging_blocks = 0;
};

// Runs steps in order, one at a time. Engine thread only, except that the completion listener is
// called on a device thread: after each step, and whenever there is a new tier event.
//
// A step without slices is legal. While offloaded tokens are under way or entering it takes
// visitors only, and ends when no stage that it has still to pass has or can get one: it waits for
// hops rather than ending empty, but only until there is a tier event, because that may let a
// sequence go on. With transfers alone it ends at once.
class StepExecutor {
 public:
  virtual ~StepExecutor() = default;
  [[nodiscard]] virtual const ExecutorLimits& limits() const = 0;
  // Needs no step in flight and an input within the limits. Copies what it keeps; never blocks.
  virtual void launch(const StepInput& input) = 0;
  // True once when a step has finished; `result`, whose memory is used again, is its result then.
  // False, and nothing written, while it runs or when none is in flight.
  [[nodiscard]] virtual bool poll(StepResult& result) = 0;
  // A step of visitors alone that waits for a hop need not wait any longer: it ends as soon as what
  // it has launched does. Elsewhere does nothing.
  virtual void wait_no_longer() {}
  // Null while it works. When its device has failed for good: what went wrong, and the cure. From
  // then on steps end without results (poll gives an empty one), and nothing that was computed is
  // left. To be asked after poll, before the result is used. The listener is called when it fails.
  [[nodiscard]] virtual const Error* failure() const { return nullptr; }
  // When to poll again although the listener was not called: work on the host may hang, which
  // nothing reports. Nanos::max(): no need to.
  [[nodiscard]] virtual Nanos next_check(Nanos /*now*/) const { return Nanos::max(); }
  // No more visits of this sequence, which has entered. Needs no step in flight. Answered by a
  // `left`, even where nothing of it was under way; then its place is free, and it may enter again.
  virtual void leave(SequenceId offloaded) = 0;
  // Each event once; may be called at any time, also when no step is in flight.
  [[nodiscard]] virtual TierEvents take_tier_events() = 0;
  [[nodiscard]] virtual TierCounts tier_counts() const { return {}; }
  // Between two steps: the stage that the token of this sequence visits next. The token waits there
  // or is on its way there. -1: no token of it is under way, or the executor does not tell. About
  // 0.05 us.
  [[nodiscard]] virtual int32_t next_stage(SequenceId /*offloaded*/) const { return -1; }
};

}  // namespace tandem
