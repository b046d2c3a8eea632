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

// Calls visit(ids) for runs of tokens that together are positions begin .. end - 1.
template <class Visit>
void visit_history(const SampleRow& spec, int64_t begin, int64_t end, const Visit& visit) {
  const int64_t size = spec.history_block_tokens;
  while (begin < end) {
    const int64_t slot = begin % size;
    const int64_t count = std::min(size - slot, end - begin);
    visit(std::span(spec.history + spec.history_blocks[begin / size] * size + slot,
                    static_cast<size_t>(count)));
    begin += count;
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

void apply_repetition(const SampleRow& spec, float* logits, int64_t vocabulary) {
  const int64_t tokens = spec.prompt_tokens + spec.output_tokens;
  IdRange range;
  visit_history(spec, 0, tokens,
                [&](std::span<const int32_t> ids) { extend(ids, vocabulary, range); });
  for (int64_t begin = range.first; begin <= range.last; begin += kMarkWindow) {
    uint64_t marks[kMarkWindow / 64] = {};
    const int64_t end = std::min(begin + kMarkWindow, vocabulary);
    visit_history(spec, 0, tokens, [&](std::span<const int32_t> ids) {
      penalize_once(ids, spec.repetition_penalty, begin, end, marks, logits);
    });
  }
}

void apply_counts(const SampleRow& spec, float* logits, int64_t vocabulary) {
  const int64_t tokens = spec.prompt_tokens + spec.output_tokens;
  IdRange range;
  visit_history(spec, spec.prompt_tokens, tokens,
                [&](std::span<const int32_t> ids) { extend(ids, vocabulary, range); });
  for (int64_t begin = range.first; begin <= range.last; begin += kCountWindow) {
    int32_t counts[kCountWindow] = {};
    const int64_t end = std::min(begin + kCountWindow, vocabulary);
    visit_history(spec, spec.prompt_tokens, tokens, [&](std::span<const int32_t> ids) {
      for (const int32_t id : ids) {
        if (id >= begin && id < end) {
          ++counts[id - begin];
        }
      }
    });
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
  if (spec.repetition_penalty != 1.0F) {
    apply_repetition(spec, logits, vocabulary);
  }
  if (spec.presence_penalty != 0.0F || spec.frequency_penalty != 0.0F) {
    apply_counts(spec, logits, vocabulary);
  }
}

}  // namespace tandem::kernels
