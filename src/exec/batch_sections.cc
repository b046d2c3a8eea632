#include "exec/batch_sections.h"

#include <algorithm>

namespace tandem {

int64_t SampleRowWriter::bytes(const StepSize& size) {
  return section_bytes<int32_t>(size.banned) + section_bytes<kernels::TokenBias>(size.biases) +
         section_bytes<int32_t>(size.history_tokens) + section_bytes<int32_t>(size.history_tables) +
         section_bytes<kernels::SampleRow>(size.samples);
}

SampleRowWriter::SampleRowWriter(const StepSize& size, HistoryBlocks& histories,
                                 SectionCarver& carver)
    : histories_(histories),
      rows_(carver.take<kernels::SampleRow>(size.samples)),
      banned_(carver.take<int32_t>(size.banned)),
      biases_(carver.take<kernels::TokenBias>(size.biases)),
      history_(carver.take<int32_t>(size.history_tokens)),
      history_tables_(carver.take<int32_t>(size.history_tables)) {}

void SampleRowWriter::add(const SampleSpec& spec, std::span<const BlockId> table) {
  const SamplingParams& params = *spec.params;
  kernels::SampleRow& row = rows_.add();
  row.temperature = params.temperature;
  row.top_p = params.top_p;
  row.min_p = params.min_p;
  row.top_k = params.top_k;
  row.repetition_penalty = params.repetition_penalty;
  row.presence_penalty = params.presence_penalty;
  row.frequency_penalty = params.frequency_penalty;
  row.seed = spec.seed;
  row.position = spec.position;
  row.logprobs = std::min(params.logprobs, kernels::kMaxTopLogprobs);
  const HistoryBlocks::Range history = HistoryBlocks::range_of(spec);
  if (!history.empty()) {
    row.history = history_.device();
    row.history_blocks = history_tables_.device_end();
    row.history_block_tokens = histories_.block_tokens();
    row.prompt_tokens = static_cast<int64_t>(spec.prompt.size());
    row.output_tokens = static_cast<int64_t>(spec.output.size());
    histories_.write(spec, history, table, history_.host(),
                     history_tables_.add_room(histories_.table_entries(history)));
  }
  if (!spec.banned.empty()) {
    row.banned = banned_.add_all(spec.banned.data(), spec.banned.size());
    row.banned_count = static_cast<int64_t>(spec.banned.size());
  }
  if (!params.logit_bias.empty()) {
    row.biases = biases_.device_end();
    row.bias_count = static_cast<int64_t>(params.logit_bias.size());
    for (const LogitBias& bias : params.logit_bias) {
      biases_.add({.token = bias.token, .bias = bias.bias});
    }
  }
}

}  // namespace tandem
