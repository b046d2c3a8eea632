#include "exec/batch_sections.h"

#include <algorithm>

#include "base/check.h"

namespace tandem {
namespace {

// Only a repetition penalty looks at the prompt, and only penalties look at the output: nothing
// else is worth copying.
bool reads_prompt(const SamplingParams& params) { return params.repetition_penalty != 1.0F; }
bool reads_output(const SamplingParams& params) {
  return reads_prompt(params) || params.presence_penalty != 0.0F ||
         params.frequency_penalty != 0.0F;
}

}  // namespace

void measure_sample(const SampleSpec& spec, StepSize& size) {
  CHECK(spec.params != nullptr, "a sample of sequence {} without parameters", raw(spec.sequence));
  ++size.samples;
  size.tokens += static_cast<int64_t>(spec.banned.size());
  size.tokens += reads_prompt(*spec.params) ? static_cast<int64_t>(spec.prompt.size()) : int64_t{0};
  size.tokens += reads_output(*spec.params) ? static_cast<int64_t>(spec.output.size()) : int64_t{0};
  size.biases += static_cast<int64_t>(spec.params->logit_bias.size());
}

int64_t SampleRowWriter::bytes(const StepSize& size) {
  return section_bytes<int32_t>(size.tokens) + section_bytes<kernels::TokenBias>(size.biases) +
         section_bytes<kernels::SampleRow>(size.samples);
}

SampleRowWriter::SampleRowWriter(const StepSize& size, SectionCarver& carver)
    : tokens_(carver.take<int32_t>(size.tokens)),
      biases_(carver.take<kernels::TokenBias>(size.biases)),
      rows_(carver.take<kernels::SampleRow>(size.samples)) {}

void SampleRowWriter::add(const SampleSpec& spec) {
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
}

}  // namespace tandem
