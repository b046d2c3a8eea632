#include "latency/random_batch.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace tandem::latency {
namespace {

constexpr int64_t kMostPrompts = 6;

}  // namespace

// Drawn by hand: the standard library's distributions differ between implementations.
double RandomBatches::share() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

int64_t RandomBatches::between(int64_t least, int64_t most) {
  const auto width = static_cast<double>(most - least + 1);
  return std::min(most, least + static_cast<int64_t>(share() * width));
}

int64_t RandomBatches::by_magnitude(int64_t least, int64_t most) {
  const double low = std::log(static_cast<double>(least));
  const double high = std::log(static_cast<double>(most) + 1);
  return std::clamp(static_cast<int64_t>(std::exp(low + share() * (high - low))), least, most);
}

int64_t RandomBatches::tokens_left(const Batch& batch) const {
  return limits_.tokens - pool_tokens(batch, limits_.block_tokens);
}

void RandomBatches::add_decodes(Batch& batch, int64_t rows) {
  // Sequences of a server are of like lengths at a time, but not of one.
  const int64_t longest = by_magnitude(3, limits_.context);
  for (int64_t i = 0; i < rows; ++i) {
    batch.contexts.push_back(static_cast<int32_t>(between(2, longest)));
    if (tokens_left(batch) < 0) {
      batch.contexts.pop_back();
      return;
    }
  }
}

void RandomBatches::add_prompts(Batch& batch, int64_t rows) {
  const auto room = limits_.sequences - static_cast<int64_t>(batch.contexts.size());
  for (int64_t left = std::min(kMostPrompts, room); left > 0 && rows > 0; --left) {
    // A chunk takes what is left of a budget, so the last prompt takes all.
    const int64_t most = std::min<int64_t>(rows, limits_.context - 2);
    const int64_t own = left == 1 || share() < 0.5 ? most : between(1, most);
    const int64_t before = share() < 0.5 ? 0 : between(0, limits_.context - 2 - own);
    batch.prompts.push_back({.computed_tokens = static_cast<int32_t>(before),
                             .rows = static_cast<int32_t>(own),
                             .logits = share() < 0.5 ? 1 : 0});
    if (tokens_left(batch) < 0) {
      batch.prompts.pop_back();
      return;
    }
    rows -= own;
  }
}

Batch RandomBatches::next() {
  const double which = share();
  return next(which < 0.4 ? Regime::kDecode : which < 0.8 ? Regime::kMixed : Regime::kPrefill);
}

Batch RandomBatches::next(Regime regime) {
  CHECK(limits_.rows > 0 && limits_.sequences > 0 && limits_.context >= 4 &&
            limits_.tokens >= 2 * int64_t{limits_.block_tokens},
        "no batches within {} rows, {} sequences, a context of {} and {} tokens", limits_.rows,
        limits_.sequences, limits_.context, limits_.tokens);
  Batch batch;
  const int64_t most = std::min(limits_.rows, limits_.sequences);
  if (regime == Regime::kDecode || (regime == Regime::kMixed && most > 1)) {
    add_decodes(batch, by_magnitude(1, regime == Regime::kDecode ? most : most - 1));
  }
  if (regime != Regime::kDecode) {
    const auto decodes = static_cast<int64_t>(batch.contexts.size());
    add_prompts(batch, by_magnitude(1, std::max<int64_t>(limits_.rows - decodes, 1)));
  }
  if (batch.prompts.empty() && batch.contexts.empty()) {
    batch.contexts.push_back(2);  // the tokens did not suffice for what was drawn
  }
  return batch;
}

}  // namespace tandem::latency
