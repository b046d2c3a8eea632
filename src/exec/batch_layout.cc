#include "exec/batch_layout.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace tandem {
namespace {

constexpr int64_t kAlignment = 64;

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Only a repetition penalty looks at the prompt, and only penalties look at the output: nothing
// else is worth copying.
bool reads_prompt(const SamplingParams& params) { return params.repetition_penalty != 1.0F; }
bool reads_output(const SamplingParams& params) {
  return reads_prompt(params) || params.presence_penalty != 0.0F ||
         params.frequency_penalty != 0.0F;
}

// An array being filled on the host, and its address on the device.
template <class T>
class Section {
 public:
  Section(T* host, const T* device) : host_(host), device_(device) {}
  [[nodiscard]] const T* device() const { return device_; }
  [[nodiscard]] const T* device_end() const { return device_ + count_; }
  void add(const T& value) { host_[count_++] = value; }
  // Copies a run and returns where it will lie; T and U have the same representation.
  template <class U>
  const T* add_all(const U* values, size_t count) {
    const T* begin = device_end();
    for (size_t i = 0; i < count; ++i) {
      add(T{values[i]});
    }
    return begin;
  }

 private:
  T* host_;
  const T* device_;
  int64_t count_ = 0;
};

class Carver {
 public:
  explicit Carver(const StagingPlace& place) : place_(place) {}
  template <class T>
  Section<T> take(int64_t count) {
    const int64_t offset = used_;
    used_ += aligned(count * static_cast<int64_t>(sizeof(T)));
    return {reinterpret_cast<T*>(place_.host + offset),
            reinterpret_cast<const T*>(place_.device + offset)};
  }

 private:
  const StagingPlace place_;
  int64_t used_ = 0;
};

class Writer {
 public:
  Writer(const StepSize& size, const StepBounds& bounds, Carver carver)
      : bounds_(bounds),
        ids_(carver.take<int32_t>(size.rows)),
        positions_(carver.take<int32_t>(size.rows)),
        blocks_(carver.take<int32_t>(size.rows)),
        slots_(carver.take<int32_t>(size.rows)),
        sampled_rows_(carver.take<int32_t>(size.samples)),
        tables_(carver.take<int32_t>(size.table_blocks)),
        tokens_(carver.take<int32_t>(size.tokens)),
        biases_(carver.take<kernels::TokenBias>(size.biases)),
        slices_(carver.take<kernels::AttentionSlice>(size.slices)),
        samples_(carver.take<kernels::SampleRow>(size.samples)),
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
    const int32_t* table = tables_.device_end();
    for (const BlockId block : slice.block_table) {
      CHECK(raw(block) >= 0 && raw(block) < bounds_.limits.total_blocks, "block {} of {}",
            raw(block), bounds_.limits.total_blocks);
      tables_.add(raw(block));
    }
    for (int32_t i = 0; i < row_count; ++i) {
      const TokenId token = slice.tokens[static_cast<size_t>(i)];
      CHECK(token >= 0 && token < bounds_.vocabulary, "token {} of a vocabulary of {}", token,
            bounds_.vocabulary);
      const int32_t position = slice.first_position + i;
      ids_.add(token);
      positions_.add(position);
      blocks_.add(raw(slice.block_table[static_cast<size_t>(position / block_tokens)]));
      slots_.add(position % block_tokens);
    }
    slices_.add({.row_begin = rows_,
                 .row_count = row_count,
                 .first_position = slice.first_position,
                 .block_table = table});
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
    for (const SampleSpec& spec : slice.samples) {
      in_order_ = in_order_ && sample_count_ == rows_ - 1;
      sampled_rows_.add(rows_ - 1);
      samples_.add(sample_row(spec));
      ++sample_count_;
    }
    ++slice_count_;
  }

  [[nodiscard]] StepInputs inputs() const {
    return {.rows = rows_,
            .slice_count = slice_count_,
            .sample_count = sample_count_,
            .every_row_is_sampled_in_order = in_order_ && sample_count_ == rows_,
            .ids = ids_.device(),
            .positions = positions_.device(),
            .blocks = blocks_.device(),
            .slots = slots_.device(),
            .slices = slices_.device(),
            .sampled_rows = sampled_rows_.device(),
            .samples = samples_.device(),
            .scored_count = scored_count_,
            .scored_rows = scored_rows_.device(),
            .scored = scored_.device()};
  }

 private:
  kernels::SampleRow sample_row(const SampleSpec& spec) {
    const SamplingParams& params = *spec.params;
    kernels::SampleRow row{.temperature = params.temperature,
                           .top_p = params.top_p,
                           .min_p = params.min_p,
                           .top_k = params.top_k,
                           .repetition_penalty = params.repetition_penalty,
                           .presence_penalty = params.presence_penalty,
                           .frequency_penalty = params.frequency_penalty,
                           .seed = spec.seed,
                           .position = spec.position,
                           .logprobs = std::min(params.logprobs, kernels::kMaxTopLogprobs)};
    if (reads_prompt(params)) {
      row.prompt = tokens_.add_all(spec.prompt.data(), spec.prompt.size());
      row.prompt_tokens = static_cast<int64_t>(spec.prompt.size());
    }
    if (reads_output(params)) {
      row.output = tokens_.add_all(spec.output.data(), spec.output.size());
      row.output_tokens = static_cast<int64_t>(spec.output.size());
    }
    if (!spec.banned.empty()) {
      row.banned = tokens_.add_all(spec.banned.data(), spec.banned.size());
      row.banned_count = static_cast<int64_t>(spec.banned.size());
    }
    if (!params.logit_bias.empty()) {
      row.biases = biases_.device_end();
      row.bias_count = static_cast<int64_t>(params.logit_bias.size());
      for (const LogitBias& bias : params.logit_bias) {
        biases_.add({.token = bias.token, .bias = bias.bias});
      }
    }
    return row;
  }

  const StepBounds& bounds_;
  int32_t rows_ = 0;
  int32_t slice_count_ = 0;
  int32_t sample_count_ = 0;
  int32_t scored_count_ = 0;
  bool in_order_ = true;
  Section<int32_t> ids_;
  Section<int32_t> positions_;
  Section<int32_t> blocks_;
  Section<int32_t> slots_;
  Section<int32_t> sampled_rows_;
  Section<int32_t> tables_;
  Section<int32_t> tokens_;
  Section<kernels::TokenBias> biases_;
  Section<kernels::AttentionSlice> slices_;
  Section<kernels::SampleRow> samples_;
  Section<int32_t> scored_rows_;
  Section<kernels::SampleRow> scored_;
};

}  // namespace

StepSize measure_step(const StepInput& input) {
  StepSize size;
  for (const StepSlice& slice : input.slices) {
    ++size.slices;
    size.rows += static_cast<int64_t>(slice.tokens.size());
    size.samples += static_cast<int64_t>(slice.samples.size());
    size.table_blocks += static_cast<int64_t>(slice.block_table.size());
    size.scored += static_cast<int64_t>(slice.scored.size());
    for (const SampleSpec& spec : slice.samples) {
      CHECK(spec.params != nullptr, "a sample of sequence {} without parameters",
            raw(spec.sequence));
      size.tokens += static_cast<int64_t>(spec.banned.size());
      size.tokens +=
          reads_prompt(*spec.params) ? static_cast<int64_t>(spec.prompt.size()) : int64_t{0};
      size.tokens +=
          reads_output(*spec.params) ? static_cast<int64_t>(spec.output.size()) : int64_t{0};
      size.biases += static_cast<int64_t>(spec.params->logit_bias.size());
    }
  }
  return size;
}

int64_t staging_bytes(const StepSize& size) {
  constexpr auto kInt = static_cast<int64_t>(sizeof(int32_t));
  return 4 * aligned(size.rows * kInt) + aligned(size.samples * kInt) +
         aligned(size.table_blocks * kInt) + aligned(size.tokens * kInt) +
         aligned(size.biases * static_cast<int64_t>(sizeof(kernels::TokenBias))) +
         aligned(size.slices * static_cast<int64_t>(sizeof(kernels::AttentionSlice))) +
         aligned(size.samples * static_cast<int64_t>(sizeof(kernels::SampleRow))) +
         aligned(size.scored * kInt) +
         aligned(size.scored * static_cast<int64_t>(sizeof(kernels::SampleRow)));
}

StepInputs lay_out_step(const StepInput& input, const StepSize& size, const StepBounds& bounds,
                        const StagingPlace& place) {
  CHECK(size.rows <= bounds.limits.max_batched_tokens, "{} rows in a step of at most {}", size.rows,
        bounds.limits.max_batched_tokens);
  CHECK(size.samples <= bounds.limits.max_logit_rows, "{} samples in a step of at most {}",
        size.samples, bounds.limits.max_logit_rows);
  Writer writer(size, bounds, Carver(place));
  for (const StepSlice& slice : input.slices) {
    writer.add(slice);
  }
  return writer.inputs();
}

}  // namespace tandem
