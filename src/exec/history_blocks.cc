#include "exec/history_blocks.h"

#include <algorithm>

#include "base/check.h"

namespace tandem {
namespace {

// Tokens `begin` .. `end` - 1 of prompt and output.
void copy_tokens(const SampleSpec& spec, int64_t begin, int64_t end, int32_t* to) {
  const auto prompt = static_cast<int64_t>(spec.prompt.size());
  if (begin < prompt) {
    to = std::copy(spec.prompt.begin() + begin, spec.prompt.begin() + std::min(end, prompt), to);
  }
  if (end > prompt) {
    std::copy(spec.output.begin() + std::max<int64_t>(begin - prompt, 0),
              spec.output.begin() + (end - prompt), to);
  }
}

}  // namespace

HistoryBlocks::HistoryBlocks(int64_t total_blocks, int32_t block_tokens)
    : block_tokens_(block_tokens), blocks_(static_cast<size_t>(total_blocks)) {
  added_.reserve(blocks_.size());
}

void HistoryBlocks::clear() {
  for (const BlockId id : added_) {
    block(id) = {};
  }
  added_.clear();
}

void HistoryBlocks::add(const Range& range, std::span<const BlockId> table) {
  CHECK(table_entries(range) <= static_cast<int64_t>(table.size()),
        "{} blocks of {} tokens for a history of {} tokens", table.size(), block_tokens_,
        range.end);
  for (int64_t i = range.begin / block_tokens_; i < table_entries(range); ++i) {
    const BlockId id = table[static_cast<size_t>(i)];
    CHECK(raw(id) >= 0 && raw(id) < std::ssize(blocks_), "block {} of {}", raw(id), blocks_.size());
    if (block(id).place < 0) {
      block(id).place = static_cast<int32_t>(added_.size());
      added_.push_back(id);
    }
  }
}

int64_t HistoryBlocks::tokens() const { return std::ssize(added_) * block_tokens_; }

int64_t HistoryBlocks::table_entries(const Range& range) const {
  return range.empty() ? 0 : (range.end + block_tokens_ - 1) / block_tokens_;
}

void HistoryBlocks::write(const SampleSpec& spec, const Range& range,
                          std::span<const BlockId> table, int32_t* tokens, int32_t* table_out) {
  const int64_t first = range.begin / block_tokens_;
  std::fill(table_out, table_out + first, 0);  // nobody looks there
  for (int64_t i = first; i < table_entries(range); ++i) {
    Block& one = block(table[static_cast<size_t>(i)]);
    const int64_t start = i * block_tokens_;
    const auto known = static_cast<int32_t>(std::min<int64_t>(range.end - start, block_tokens_));
    if (one.written < known) {
      copy_tokens(spec, start + one.written, start + known,
                  tokens + int64_t{one.place} * block_tokens_ + one.written);
      one.written = known;
    }
    table_out[i] = one.place;
  }
}

}  // namespace tandem
