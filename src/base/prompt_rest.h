// What is left to compute of a prompt, as schedulers and models of time ask about it. Plain data;
// any thread.
#pragma once

#include <cstdint>

namespace tandem {

struct PromptRest {
  int32_t computed_tokens = 0;  // that are, or that the prefix cache is believed to give
  int32_t pending_tokens = 0;   // still to be computed
  int32_t choices = 1;          // rows that are sampled when the prompt ends

  [[nodiscard]] int32_t known_tokens() const { return computed_tokens + pending_tokens; }
  // After a chunk of so many tokens.
  [[nodiscard]] PromptRest after(int32_t tokens) const {
    return {computed_tokens + tokens, pending_tokens - tokens, choices};
  }
  bool operator==(const PromptRest&) const = default;
};

}  // namespace tandem
