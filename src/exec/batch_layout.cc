#include "exec/batch_layout.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"
#include "exec/batch_sections.h"

namespace tandem {
namespace {

// The blocks of the slice's table that it reaches.
std::span<const BlockId> blocks_for(const StepSlice& slice, int32_t block_tokens) {
  const std::span<const BlockId> table = slice.block_table;
  const int64_t end = slice.first_position + std::ssize(slice.tokens);
  if ((std::ssize(table) - 1) * block_tokens < end) {
    return table;  // nearly always, without a division
  }
  // Whether positions are possible is checked later, when the slice is laid out.
  return table.first(static_cast<size_t>(std::max<int64_t>(end + block_tokens - 1, 0)) /
                     static_cast<size_t>(block_tokens));
}

// Block ids for the histories of slices that go straight to the host: the highest ids, counted
// down, which no block of the pool has.
class HistoryTables {
 public:
  explicit HistoryTables(const HistoryBlocks& histories) : last_(histories.total_blocks() - 1) {}
  // Good until the next call. To be called for each slice in turn.
  std::span<const BlockId> of(const StepSlice& slice) {
    if (slice.tier == Tier::kAccelerator) {
      return slice.block_table;
    }
    table_.clear();
    for (size_t i = 0; i < slice.block_table.size(); ++i) {
      table_.push_back(static_cast<BlockId>(last_--));
    }
    return table_;
  }

 private:
  int64_t last_;
  std::vector<BlockId> table_;
};

int64_t bucket_of(int64_t count, int64_t limit) {
  return std::max(
      count, std::min(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count))), limit));
}

// The room that a step of this size has: that of its bucket in the arrays that every step has.
StepSize room_for(const StepSize& size, const ExecutorLimits& limits) {
  StepSize room = size;
  room.rows = bucket_of(size.rows, limits.max_batched_tokens);
  room.slices = bucket_of(size.slices, std::min(limits.max_batched_tokens, limits.max_logit_rows));
  room.samples = bucket_of(size.samples, limits.max_logit_rows);
  return room;
}

class Writer {
 public:
  Writer(const StepSize& size, const StepBounds& bounds, HistoryBlocks& histories,
         SectionCarver carver)
      : bounds_(bounds),
        history_tables_(histories),
        ids_(carver.take<int32_t>(size.rows)),
        positions_(carver.take<int32_t>(size.rows)),
        blocks_(carver.take<int32_t>(size.rows)),
        slots_(carver.take<int32_t>(size.rows)),
        sampled_rows_(carver.take<int32_t>(size.samples)),
        slices_(carver.take<kernels::AttentionSlice>(size.slices)),
        samples_(size, histories, carver),
        tables_(carver.take<int32_t>(size.table_blocks)),
        scored_rows_(carver.take<int32_t>(size.scored)),
        scored_(carver.take<kernels::SampleRow>(size.scored)) {}

  void add(const StepSlice& slice) {
    const auto row_count = static_cast<int32_t>(slice.tokens.size());
    const int32_t block_tokens = bounds_.limits.block_tokens;
    const int64_t end = int64_t{slice.first_position} + row_count;
    CHECK(row_count > 0 && slice.first_position >= 0 && end <= std::numeric_limits<int32_t>::max(),
          "{} tokens from position {}", row_count, slice.first_position);
    CHECK(static_cast<int64_t>(slice.block_table.size()) * block_tokens >= end,
          "{} blocks of {} tokens for {} tokens", slice.block_table.size(), block_tokens, end);
    const bool is_staged = slice.tier == Tier::kHost;
    CHECK(is_staged || staged_.slices == 0, "slices that go straight to the host must come last");
    const int32_t* table = tables_.device_end();
    if (is_staged) {
      add_staged_blocks(slice);
    } else {
      add_rows(slice, slice.block_table.data());
      add_blocks(blocks_for(slice, block_tokens));
    }
    device::AttentionShape& shape = is_staged ? staged_ : pooled_;
    slices_.add({.row_begin = shape.rows,
                 .row_count = row_count,
                 .first_position = slice.first_position,
                 .block_table = table});
    shape.rows += row_count;
    shape.slices += 1;
    shape.max_context = std::max(shape.max_context, static_cast<int32_t>(end));
    shape.splits += kernels::divide_up(end, kernels::kSplitTokens);
    CHECK(slice.scored.size() <= slice.tokens.size(), "{} tokens to score after {} rows",
          slice.scored.size(), slice.tokens.size());
    for (size_t i = 0; i < slice.scored.size(); ++i) {
      const TokenId token = slice.scored[i];
      CHECK(token >= 0 && token < bounds_.vocabulary, "token {} of a vocabulary of {}", token,
            bounds_.vocabulary);
      scored_rows_.add(rows_ + static_cast<int32_t>(i));
      scored_.add(
          {.logprobs = std::min(slice.scored_top, kernels::kMaxTopLogprobs), .given = token});
      ++scored_count_;
    }
    rows_ += row_count;
    const std::span<const BlockId> histories =
        is_staged ? history_tables_.of(slice) : slice.block_table;
    for (const SampleSpec& spec : slice.samples) {
      in_order_ = in_order_ && sample_count_ == rows_ - 1;
      sampled_rows_.host()[sample_count_] = rows_ - 1;
      samples_.add(spec, histories);
      ++sample_count_;
    }
  }

  [[nodiscard]] StepInputs inputs() const {
    return {.rows = rows_,
            .sample_count = sample_count_,
            .every_row_is_sampled_in_order = in_order_ && sample_count_ == rows_,
            .ids = ids_.device(),
            .positions = positions_.device(),
            .blocks = blocks_.device(),
            .slots = slots_.device(),
            .pooled = {.shape = pooled_, .slices = slices_.device(), .host_slices = slices_.host()},
            .staged = {.shape = staged_,
                       .slices = slices_.device() + pooled_.slices,
                       .host_slices = slices_.host() + pooled_.slices},
            .sampled_rows = sampled_rows_.device(),
            .samples = samples_.rows(),
            .scored_count = scored_count_,
            .scored_rows = scored_rows_.device(),
            .scored = scored_.device()};
  }

 private:
  // `blocks`: the slice's, from position 0 on.
  void add_rows(const StepSlice& slice, const BlockId* blocks) {
    const auto block_tokens = static_cast<uint32_t>(bounds_.limits.block_tokens);
    const auto first = static_cast<uint32_t>(slice.first_position);
    const BlockId* block = blocks + first / block_tokens;
    uint32_t slot = first % block_tokens;
    int32_t position = slice.first_position;
    size_t row = static_cast<size_t>(rows_);
    for (const TokenId token : slice.tokens) {
      CHECK(token >= 0 && token < bounds_.vocabulary, "token {} of a vocabulary of {}", token,
            bounds_.vocabulary);
      ids_.host()[row] = token;
      positions_.host()[row] = position++;
      blocks_.host()[row] = raw(*block);
      slots_.host()[row] = static_cast<int32_t>(slot);
      ++row;
      if (++slot == block_tokens) {
        slot = 0;
        ++block;
      }
    }
  }
  void add_blocks(std::span<const BlockId> blocks) {
    int32_t* to = tables_.add_room(std::ssize(blocks));
    uint32_t highest = 0;  // a negative id is higher than any
    for (const BlockId block : blocks) {
      *to++ = raw(block);
      highest = std::max(highest, static_cast<uint32_t>(raw(block)));
    }
    CHECK(highest < bounds_.limits.total_blocks, "block {} of {}", static_cast<int32_t>(highest),
          bounds_.limits.total_blocks);
  }
  void add_staged_blocks(const StepSlice& slice) {
    CHECK(slice.first_position == 0, "a prompt goes straight to the host from position {} on",
          slice.first_position);
    const auto count = std::ssize(slice.block_table);
    CHECK(count == std::ssize(blocks_for(slice, bounds_.limits.block_tokens)) &&
              staged_blocks_ + count <= bounds_.limits.staging_blocks,
          "a prompt of {} tokens takes {} of {} blocks of a staging layer, {} are taken",
          slice.tokens.size(), count, bounds_.limits.staging_blocks, staged_blocks_);
    staged_table_.clear();
    for (int64_t i = 0; i < count; ++i) {
      staged_table_.push_back(static_cast<BlockId>(staged_blocks_));
      tables_.add(staged_blocks_++);
    }
    add_rows(slice, staged_table_.data());
  }

  const StepBounds& bounds_;
  HistoryTables history_tables_;
  int32_t rows_ = 0;
  int32_t sample_count_ = 0;
  int32_t scored_count_ = 0;
  bool in_order_ = true;
  device::AttentionShape pooled_;
  device::AttentionShape staged_;
  int32_t staged_blocks_ = 0;
  std::vector<BlockId> staged_table_;  // the staging blocks of the slice that is being added
  Section<int32_t> ids_;
  Section<int32_t> positions_;
  Section<int32_t> blocks_;
  Section<int32_t> slots_;
  Section<int32_t> sampled_rows_;
  Section<kernels::AttentionSlice> slices_;
  SampleRowWriter samples_;
  Section<int32_t> tables_;
  Section<int32_t> scored_rows_;
  Section<kernels::SampleRow> scored_;
};

}  // namespace

StepSize measure_step(const StepInput& input, HistoryBlocks& histories) {
  histories.clear();
  StepSize size;
  HistoryTables tables(histories);
  for (const StepSlice& slice : input.slices) {
    ++size.slices;
    size.rows += static_cast<int64_t>(slice.tokens.size());
    size.table_blocks += std::ssize(blocks_for(slice, histories.block_tokens()));
    size.scored += static_cast<int64_t>(slice.scored.size());
    const std::span<const BlockId> table = tables.of(slice);
    for (const SampleSpec& spec : slice.samples) {
      measure_sample(spec, table, histories, size);
    }
  }
  return size;
}

int64_t staging_bytes(const StepSize& size, const ExecutorLimits& limits) {
  const StepSize room = room_for(size, limits);
  return 4 * section_bytes<int32_t>(room.rows) + section_bytes<int32_t>(room.samples) +
         section_bytes<int32_t>(room.table_blocks) +
         section_bytes<kernels::AttentionSlice>(room.slices) + SampleRowWriter::bytes(room) +
         section_bytes<int32_t>(room.scored) + section_bytes<kernels::SampleRow>(room.scored);
}

StepInputs lay_out_step(const StepInput& input, const StepSize& size, const StepBounds& bounds,
                        HistoryBlocks& histories, const StagingPlace& place) {
  CHECK(size.rows <= bounds.limits.max_batched_tokens, "{} rows in a step of at most {}", size.rows,
        bounds.limits.max_batched_tokens);
  CHECK(size.samples <= bounds.limits.max_logit_rows, "{} samples in a step of at most {}",
        size.samples, bounds.limits.max_logit_rows);
  CHECK(size.slices <= bounds.limits.max_logit_rows, "{} slices in a step of at most {}",
        size.slices, bounds.limits.max_logit_rows);
  Writer writer(room_for(size, bounds.limits), bounds, histories, SectionCarver(place));
  for (const StepSlice& slice : input.slices) {
    writer.add(slice);
  }
  return writer.inputs();
}

}  // namespace tandem
