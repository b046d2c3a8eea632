// Test help: steps over two tiers with guests, sequences whose KV moves to the host.
#pragma once

#include <span>
#include <thread>
#include <vector>

#include "support/step_driver.h"

namespace tandem::reference {

inline const SteadyClock kClock;

inline RigOptions two_tiers(Binder& binder) {
  RigOptions options{
      .type = ElementType::kBF16, .two_tier_memory_bytes = int64_t{64} << 20, .host_blocks = 64};
  options.host = {
      .sequences = 4, .threads = 1, .group_stages = 100, .clock = &kClock, .binder = &binder};
  return options;
}

inline std::vector<TokenId> prompt_of(int32_t tokens, int32_t first) {
  std::vector<TokenId> prompt;
  for (int32_t i = 0; i < tokens; ++i) {
    prompt.push_back((first + 7 * i) % 75);
  }
  return prompt;
}

inline StepResult run(ForwardExecutor& executor, const StepInput& input) {
  executor.launch(input);
  StepResult result;
  while (!executor.poll(result)) {
    std::this_thread::yield();
  }
  return result;
}

// Decodes a resident's next token; both outlive the step.
inline StepSlice next_slice(const Sequence& resident, const SampleSpec& sample) {
  return {.sequence = resident.id,
          .tokens = std::span(resident.tokens).last(1),
          .first_position = resident.computed_tokens,
          .block_table = resident.blocks,
          .samples = std::span(&sample, 1)};
}

// The host's blocks have the ids of the accelerator's.
inline void offload(ForwardExecutor& executor, const Sequence& guest, int64_t id) {
  StepInput input;
  TierTransfer transfer{.id = id, .kind = TransferKind::kOffload, .blocks = {}};
  for (const BlockId block : guest.blocks) {
    transfer.blocks.push_back({block, block});
  }
  input.transfers.push_back(transfer);
  run(executor, input);
  while (executor.take_tier_events().transfers_done.empty()) {
    std::this_thread::yield();
  }
}

inline OffloadedToken next_token(const Sequence& guest) {
  return {.sequence = guest.id,
          .token = guest.tokens.back(),
          .position = guest.computed_tokens,
          .host_table = guest.blocks,
          .sample = {.sequence = guest.id,
                     .params = &guest.params,
                     .seed = guest.seed,
                     .position = static_cast<int64_t>(guest.tokens.size())}};
}

}  // namespace tandem::reference
