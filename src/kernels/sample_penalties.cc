#include "kernels/sample_penalties.h"

#include <algorithm>
#include <limits>
#include <span>

namespace tandem::kernels {

namespace {

// Tokens that are handled together: a penalty must see each token once, and the stack has no room
// for a whole vocabulary's marks.
constexpr int64_t kMarkWindow = 131072;  // one bit each
constexpr int64_t kCountWindow = 8192;   // one int32 each

struct IdRange {
  int64_t first = std::numeric_limits<int64_t>::max();
  int64_t last = -1;
};

// The ids that occur, so that windows without any are skipped.
void extend(std::span<const int32_t> ids, int64_t vocabulary, IdRange& range) {
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocabulary) {
      range.first = std::min<int64_t>(range.first, id);
      range.last = std::max<int64_t>(range.last, id);
    }
  }
}

void penalize_once(std::span<const int32_t> ids, float penalty, int64_t begin, int64_t end,
                   uint64_t* marks, float* logits) {
  for (const int32_t id : ids) {
    if (id < begin || id >= end) {
      continue;
    }
    uint64_t& word = marks[(id - begin) / 64];
    const uint64_t bit = uint64_t{1} << ((id - begin) % 64);
    if ((word & bit) == 0) {
      word |= bit;
      logits[id] = logits[id] > 0.0F ? logits[id] / penalty : logits[id] * penalty;
    }
  }
}

void apply_repetition(const SampleRow& spec, std::span<const int32_t> prompt,
                      std::span<const int32_t> output, float* logits, int64_t vocabulary) {
  IdRange range;
  extend(prompt, vocabulary, range);
  extend(output, vocabulary, range);
  for (int64_t begin = range.first; begin <= range.last; begin += kMarkWindow) {
    uint64_t marks[kMarkWindow / 64] = {};
    const int64_t end = std::min(begin + kMarkWindow, vocabulary);
    penalize_once(prompt, spec.repetition_penalty, begin, end, marks, logits);
    penalize_once(output, spec.repetition_penalty, begin, end, marks, logits);
  }
}

void apply_counts(const SampleRow& spec, std::span<const int32_t> output, float* logits,
                  int64_t vocabulary) {
  IdRange range;
  extend(output, vocabulary, range);
  for (int64_t begin = range.first; begin <= range.last; begin += kCountWindow) {
    int32_t counts[kCountWindow] = {};
    const int64_t end = std::min(begin + kCountWindow, vocabulary);
    for (const int32_t id : output) {
      if (id >= begin && id < end) {
        ++counts[id - begin];
      }
    }
    for (int64_t i = 0; i < end - begin; ++i) {
      if (counts[i] > 0) {
        logits[begin + i] -=
            spec.frequency_penalty * static_cast<float>(counts[i]) + spec.presence_penalty;
      }
    }
  }
}

}  // namespace

void apply_biases_and_penalties(const SampleRow& spec, float* logits, int64_t vocabulary) {
  for (int64_t i = 0; i < spec.bias_count; ++i) {
    const TokenBias& entry = spec.biases[i];
    if (entry.token >= 0 && entry.token < vocabulary) {
      logits[entry.token] += entry.bias;
    }
  }
  for (int64_t i = 0; i < spec.banned_count; ++i) {
    if (spec.banned[i] >= 0 && spec.banned[i] < vocabulary) {
      logits[spec.banned[i]] = -std::numeric_limits<float>::infinity();
    }
  }
  const std::span<const int32_t> prompt(spec.prompt, static_cast<size_t>(spec.prompt_tokens));
  const std::span<const int32_t> output(spec.output, static_cast<size_t>(spec.output_tokens));
  if (spec.repetition_penalty != 1.0F) {
    apply_repetition(spec, prompt, output, logits, vocabulary);
  }
  if (spec.presence_penalty != 0.0F || spec.frequency_penalty != 0.0F) {
    apply_counts(spec, output, logits, vocabulary);
  }
}

}  // namespace tandem::kernels
