// The block tables and sampling parameters of sequences that decode on the host. Attention workers
// read the tables without a lock, perhaps long after their answer stopped to matter: a table is
// only appended to, never moves, and is replaced by a new one if it must change.
//
// Engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "exec/host_tier/hop_memory.h"
#include "piggyback/core/hop_types.h"
#include "plan/step.h"

namespace tandem {

class OffloadedTokens {
 public:
  // `max_table_blocks`: of the longest sequence.
  OffloadedTokens(std::shared_ptr<HostMemory> host, size_t max_table_blocks);

  [[nodiscard]] bool empty() const { return entries_.empty(); }
  // The sequence's next token.
  void enter(const OffloadedToken& token);
  // Nothing of the sequence is in flight any more, but for lost attempts.
  void erase(SequenceId sequence);

  // Below, `sequence` has entered and was not erased. Of its token under way:
  [[nodiscard]] const SampleSpec& sample_of(SequenceId sequence) const;
  // Appends the sequence's host blocks, as far as that token.
  void append_blocks(SequenceId sequence, std::vector<BlockId>& blocks) const;
  [[nodiscard]] BlockId block(SequenceId sequence, size_t index) const;

  // The block table of the task's sequence, valid until the sequence is erased.
  [[nodiscard]] const int32_t* table_of(const piggyback::HopTask& task);
  // A lost worker may read the sequence's tables for ever: they live as long as the worker.
  void keep_tables(SequenceId sequence);

  [[nodiscard]] size_t max_table_blocks() const { return max_table_blocks_; }

 private:
  struct Entry {
    std::shared_ptr<HostBlockTable> table;
    SampleSpec sample;
    std::vector<std::shared_ptr<HostBlockTable>> old_tables;  // that a late worker may still read
  };
  struct SlotTable {
    SequenceId sequence{-1};
    int64_t change = -1;
    const int32_t* blocks = nullptr;
  };
  void set_table(Entry& entry, std::span<const BlockId> table);

  const std::shared_ptr<HostMemory> host_;
  const size_t max_table_blocks_;
  std::unordered_map<SequenceId, Entry> entries_;
  std::vector<SlotTable> slot_tables_;  // by slot of the hop core: spares table_of a search
  int64_t table_changes_ = 0;           // tables replaced or erased
};

}  // namespace tandem
