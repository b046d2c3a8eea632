// Of which KV blocks the histories consist that penalties look at in a step. The tokens of a block
// are laid out once, whoever has it in its table, so the histories of a step are never longer than
// the KV pool: not for many choices of a long prompt either. Plain arithmetic; engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "plan/step.h"

namespace tandem {

class HistoryBlocks {
 public:
  // All memory that it will ever need.
  HistoryBlocks(int64_t total_blocks, int32_t block_tokens);

  // A step, or a group of its visitors, begins.
  void clear();

  // The positions that the sample's penalties look at; empty: none.
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
    [[nodiscard]] bool empty() const { return begin >= end; }
  };
  [[nodiscard]] static Range range_of(const SampleSpec& spec) {
    const SamplingParams& params = *spec.params;
    const bool whole = params.repetition_penalty != 1.0F;  // no other reads the prompt
    if (!whole && params.presence_penalty == 0.0F && params.frequency_penalty == 0.0F) {
      return {};
    }
    const auto prompt = static_cast<int64_t>(spec.prompt.size());
    return {.begin = whole ? 0 : prompt, .end = prompt + static_cast<int64_t>(spec.output.size())};
  }

  // The blocks of `table` that hold the range are laid out in this step.
  void add(const Range& range, std::span<const BlockId> table);
  // Room for the tokens of all that were added, and for a table that ends where the range does.
  [[nodiscard]] int64_t tokens() const;
  [[nodiscard]] int64_t table_entries(const Range& range) const;

  // Writes the tokens that are not there yet to `tokens`, and where each block of the range lies
  // to `table_out`.
  void write(const SampleSpec& spec, const Range& range, std::span<const BlockId> table,
             int32_t* tokens, int32_t* table_out);

  [[nodiscard]] int32_t block_tokens() const { return block_tokens_; }
  [[nodiscard]] int64_t total_blocks() const { return static_cast<int64_t>(blocks_.size()); }

 private:
  struct Block {
    int32_t place = -1;   // among those of this step; -1: it is none of them
    int32_t written = 0;  // leading tokens
  };
  Block& block(BlockId id) { return blocks_[static_cast<size_t>(raw(id))]; }

  const int32_t block_tokens_;
  std::vector<Block> blocks_;  // by id
  std::vector<BlockId> added_;
};

}  // namespace tandem
