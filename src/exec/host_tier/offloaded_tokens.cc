#include "exec/host_tier/offloaded_tokens.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace tandem {

OffloadedTokens::OffloadedTokens(std::shared_ptr<HostMemory> host, size_t max_table_blocks)
    : host_(std::move(host)), max_table_blocks_(max_table_blocks) {}

void OffloadedTokens::enter(const OffloadedToken& token) {
  Entry& entry = entries_[token.sequence];
  set_table(entry, token.host_table);
  entry.sample = token.sample;
}

void OffloadedTokens::set_table(Entry& entry, std::span<const BlockId> table) {
  CHECK(table.size() <= max_table_blocks_, "a table of {} blocks, at most {} are planned",
        table.size(), max_table_blocks_);
  const bool longer = entry.table != nullptr && table.size() >= entry.table->size() &&
                      std::equal(entry.table->begin(), entry.table->end(), table.begin(),
                                 [](int32_t known, BlockId block) { return known == raw(block); });
  if (!longer) {
    if (entry.table != nullptr) {
      entry.old_tables.push_back(std::move(entry.table));
    }
    ++table_changes_;
    entry.table = std::make_shared<HostBlockTable>();
    entry.table->reserve(max_table_blocks_);
  }
  for (size_t i = entry.table->size(); i < table.size(); ++i) {
    entry.table->push_back(raw(table[i]));
  }
}

void OffloadedTokens::erase(SequenceId sequence) {
  ++table_changes_;
  entries_.erase(sequence);
}

const SampleSpec& OffloadedTokens::sample_of(SequenceId sequence) const {
  return entries_.at(sequence).sample;
}

void OffloadedTokens::append_blocks(SequenceId sequence, std::vector<BlockId>& blocks) const {
  std::ranges::transform(*entries_.at(sequence).table, std::back_inserter(blocks),
                         [](int32_t block) { return static_cast<BlockId>(block); });
}

BlockId OffloadedTokens::block(SequenceId sequence, size_t index) const {
  return static_cast<BlockId>(entries_.at(sequence).table->at(index));
}

const int32_t* OffloadedTokens::table_of(const piggyback::HopTask& task) {
  const auto slot = static_cast<size_t>(task.hop.slot);
  if (slot >= slot_tables_.size()) {
    slot_tables_.resize(slot + 1);
  }
  SlotTable& known = slot_tables_[slot];
  if (known.sequence != task.sequence || known.change != table_changes_) {
    known = {task.sequence, table_changes_, entries_.at(task.sequence).table->data()};
  }
  return known.blocks;
}

void OffloadedTokens::keep_tables(SequenceId sequence) {
  const Entry& entry = entries_.at(sequence);
  host_->lost_tables.push_back(entry.table);
  host_->lost_tables.insert(host_->lost_tables.end(), entry.old_tables.begin(),
                            entry.old_tables.end());
}

}  // namespace tandem
