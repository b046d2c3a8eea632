// Choosing tokens: kernels/sample.h says what, kernels/sample_rows.h in which order. One index
// draws a whole row, so this is slow with large vocabularies; only penalties are spread. Weights
// and their sums are computed as the host's kernels do, so the same logits give the same token but
// where rounding decides. See elements.h for what a kernel is.
//
// The kernels run one after the other: AddBiases, Ban, PenalizeRepetition, PenalizeCounts, Draw.
#pragma once

#include <bit>
#include <cmath>
#include <tuple>

#include "device/cuda/kernels/elements.h"
#include "kernels/exp.h"
#include "kernels/sample.h"
#include "kernels/sample_rows.h"

namespace tandem::device::cuda {

// Of a row, where its work is spread: each looks through all that came before its own places.
inline constexpr int64_t kSampleThreads = 16384;

struct AddBiases {
  kernels::SampleArgs args;
  [[nodiscard]] TANDEM_ANYWHERE int64_t count() const { return args.row_count; }
  TANDEM_ANYWHERE void operator()(int64_t row) const {
    const kernels::SampleRow& spec = args.rows[row];
    for (int64_t i = 0; i < spec.bias_count; ++i) {  // one token may have several
      const kernels::TokenBias& entry = spec.biases[i];
      if (entry.token >= 0 && entry.token < args.vocabulary) {
        args.logits[row * args.stride + entry.token] += entry.bias;
      }
    }
  }
};

struct Ban {
  kernels::SampleArgs args;
  [[nodiscard]] TANDEM_ANYWHERE int64_t count() const { return args.row_count; }
  TANDEM_ANYWHERE void operator()(int64_t row) const {
    const kernels::SampleRow& spec = args.rows[row];
    for (int64_t i = 0; i < spec.banned_count; ++i) {
      if (spec.banned[i] >= 0 && spec.banned[i] < args.vocabulary) {
        args.logits[row * args.stride + spec.banned[i]] = -INFINITY;
      }
    }
  }
};

// The tokens of a row so far.
struct TokenHistory {
  const kernels::SampleRow& spec;
  [[nodiscard]] TANDEM_ANYWHERE int32_t operator[](int64_t position) const {
    const int64_t size = spec.history_block_tokens;
    return spec.history[spec.history_blocks[position / size] * size + position % size];
  }
  // Is there none like it in begin .. position - 1?
  [[nodiscard]] TANDEM_ANYWHERE bool is_first(int64_t begin, int64_t position) const {
    const int32_t token = (*this)[position];
    for (int64_t p = begin; p < position; ++p) {
      if ((*this)[p] == token) {
        return false;
      }
    }
    return true;
  }
};

// Each token is penalised by the index that finds it at its first place.
struct PenalizeRepetition {
  kernels::SampleArgs args;
  [[nodiscard]] TANDEM_ANYWHERE int64_t count() const { return args.row_count * kSampleThreads; }
  TANDEM_ANYWHERE void operator()(int64_t i) const {
    const int64_t row = i / kSampleThreads;
    const kernels::SampleRow& spec = args.rows[row];
    if (spec.repetition_penalty == 1.0F) {
      return;
    }
    const TokenHistory history{spec};
    const int64_t end = spec.prompt_tokens + spec.output_tokens;
    for (int64_t p = i % kSampleThreads; p < end; p += kSampleThreads) {
      const int32_t token = history[p];
      if (token >= 0 && token < args.vocabulary && history.is_first(0, p)) {
        float& logit = args.logits[row * args.stride + token];
        logit = logit > 0.0F ? logit / spec.repetition_penalty : logit * spec.repetition_penalty;
      }
    }
  }
};

struct PenalizeCounts {
  kernels::SampleArgs args;
  [[nodiscard]] TANDEM_ANYWHERE int64_t count() const { return args.row_count * kSampleThreads; }
  TANDEM_ANYWHERE void operator()(int64_t i) const {
    const int64_t row = i / kSampleThreads;
    const kernels::SampleRow& spec = args.rows[row];
    if (spec.presence_penalty == 0.0F && spec.frequency_penalty == 0.0F) {
      return;
    }
    const TokenHistory history{spec};
    const int64_t begin = spec.prompt_tokens;
    const int64_t end = begin + spec.output_tokens;
    for (int64_t p = begin + i % kSampleThreads; p < end; p += kSampleThreads) {
      const int32_t token = history[p];
      if (token < 0 || token >= args.vocabulary || !history.is_first(begin, p)) {
        continue;
      }
      int32_t times = 0;
      for (int64_t other = p; other < end; ++other) {
        times += history[other] == token ? 1 : 0;
      }
      args.logits[row * args.stride + token] -=
          spec.frequency_penalty * static_cast<float>(times) + spec.presence_penalty;
    }
  }
};

// Where the order of logits is cut: all above `logit` are kept, and the first `ties` equal to it.
struct LogitCut {
  float logit = 0.0F;
  int64_t ties = 0;
};

// Unsigned integers in the order of the floats; -0 equals 0.
TANDEM_ANYWHERE inline uint32_t order_key(float x) {
  const auto bits = std::bit_cast<uint32_t>(x + 0.0F);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
TANDEM_ANYWHERE inline float key_logit(uint32_t key) {
  return std::bit_cast<float>((key & 0x80000000U) != 0 ? key & 0x7fffffffU : ~key);
}

// One row, once its logits are biased and penalised.
class DrawnRow {
 public:
  TANDEM_ANYWHERE DrawnRow(float* logits, int64_t vocabulary, const kernels::SampleRow& spec)
      : x_(logits), count_(vocabulary), spec_(spec) {}

  TANDEM_ANYWHERE void run(kernels::SampleResult& result) {
    result = {};
    if (!find_highest()) {
      result.token = -1;
      return;
    }
    double log_total = 0.0;
    if (spec_.logprobs >= 0) {
      log_total = std::log(total_weight());
      list_most_likely(log_total, result);
    }
    constexpr float kColdest = 1e-20F;  // colder is greedy
    if (spec_.given >= 0) {
      result.token = spec_.given;
    } else {
      result.token = spec_.temperature >= kColdest ? draw() : highest_;
    }
    if (spec_.logprobs >= 0) {
      const float logit = x_[result.token];
      result.logprob = logprob(logit, log_total);
      result.rank = static_cast<int32_t>(rank_of(result.token, logit));
    }
  }

 private:
  // False: there is a NaN or +infinity, or nothing but -infinity.
  TANDEM_ANYWHERE bool find_highest() {
    for (int64_t i = 0; i < count_; ++i) {
      if (!(x_[i] < INFINITY)) {
        return false;
      }
      if (x_[i] > max_) {
        max_ = x_[i];
        highest_ = static_cast<int32_t>(i);
      }
    }
    return max_ > -INFINITY;
  }

  [[nodiscard]] TANDEM_ANYWHERE float weight(int64_t i) const {
    return kernels::exp_scalar((x_[i] - max_) * inverse_temperature_);
  }
  // Of a chunk: kSampleLanes sums in fp32, added pairwise.
  [[nodiscard]] TANDEM_ANYWHERE float chunk_weight(int64_t begin) const {
    const int64_t end =
        begin + kernels::kSampleChunk < count_ ? begin + kernels::kSampleChunk : count_;
    float sums[kernels::kSampleLanes] = {};
    for (int64_t i = begin; i < end; ++i) {
      sums[(i - begin) % kernels::kSampleLanes] += weight(i);
    }
    for (int64_t step = kernels::kSampleLanes / 2; step > 0; step /= 2) {
      for (int64_t i = 0; i < step; ++i) {
        sums[i] += sums[i + step];
      }
    }
    return sums[0];
  }
  [[nodiscard]] TANDEM_ANYWHERE double total_weight() const {
    double total = 0.0;
    for (int64_t i = 0; i < count_; i += kernels::kSampleChunk) {
      total += static_cast<double>(chunk_weight(i));
    }
    return total;
  }

  [[nodiscard]] TANDEM_ANYWHERE float logprob(float logit, double log_total) const {
    return static_cast<float>(static_cast<double>(logit) - static_cast<double>(max_) - log_total);
  }
  [[nodiscard]] TANDEM_ANYWHERE int64_t rank_of(int64_t token, float logit) const {
    int64_t rank = 1;
    for (int64_t i = 0; i < count_; ++i) {
      rank += x_[i] > logit || (i < token && x_[i] == logit) ? 1 : 0;
    }
    return rank;
  }
  TANDEM_ANYWHERE void list_most_likely(double log_total, kernels::SampleResult& result) const {
    const int32_t wanted =
        spec_.logprobs < kernels::kMaxTopLogprobs ? spec_.logprobs : kernels::kMaxTopLogprobs;
    float logits[kernels::kMaxTopLogprobs] = {};
    int32_t listed = 0;
    for (int64_t i = 0; i < count_ && wanted > 0; ++i) {
      if (x_[i] == -INFINITY || (listed == wanted && x_[i] <= logits[listed - 1])) {
        continue;
      }
      int32_t at = listed < wanted ? listed++ : listed - 1;
      for (; at > 0 && x_[i] > logits[at - 1]; --at) {  // among equals the lower id stays first
        logits[at] = logits[at - 1];
        result.top_tokens[at] = result.top_tokens[at - 1];
      }
      logits[at] = x_[i];
      result.top_tokens[at] = static_cast<int32_t>(i);
    }
    result.top_count = listed;
    for (int32_t i = 0; i < listed; ++i) {
      result.top_logprobs[i] = logprob(logits[i], log_total);
    }
  }

  TANDEM_ANYWHERE int32_t draw() {
    constexpr float kSmallest = 0x1p-126F;  // keeps -infinity * inverse from becoming NaN
    inverse_temperature_ = std::fmax(1.0F / spec_.temperature, kSmallest);
    if (spec_.top_k > 0 && spec_.top_k < count_) {
      apply(cut_by_count(spec_.top_k));
    }
    if (spec_.top_p < 1.0F) {
      apply(cut_by_weight(static_cast<double>(spec_.top_p) * total_weight()));
    }
    for (int64_t i = 0; spec_.min_p > 0.0F && i < count_; ++i) {
      if (x_[i] < max_ && weight(i) < spec_.min_p) {  // the highest is kept whatever min_p is
        x_[i] = -INFINITY;
      }
    }
    return draw_from_row(
        kernels::sample_uniform(spec_.seed, static_cast<uint64_t>(spec_.position)));
  }

  TANDEM_ANYWHERE void apply(LogitCut cut) {
    for (int64_t i = 0; i < count_; ++i) {
      const bool tie = x_[i] == cut.logit && cut.ties > 0;
      cut.ties -= tie ? 1 : 0;
      if (!tie && !(x_[i] > cut.logit)) {
        x_[i] = -INFINITY;
      }
    }
  }

  static constexpr int kDigitBits = 4;
  static constexpr int kBins = 1 << kDigitBits;

  // The cut that keeps `wanted` tokens: the key of the wanted-th is found digit by digit.
  [[nodiscard]] TANDEM_ANYWHERE LogitCut cut_by_count(int64_t wanted) const {
    uint32_t prefix = 0;
    uint32_t mask = 0;
    int64_t before = 0;
    for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
      int64_t counts[kBins] = {};
      for (int64_t i = 0; i < count_; ++i) {
        const uint32_t key = order_key(x_[i]);
        counts[(key >> shift) % kBins] += (key & mask) == prefix ? 1 : 0;
      }
      uint32_t bin = kBins - 1;
      while (bin > 0 && before + counts[bin] < wanted) {
        before += counts[bin--];
      }
      prefix |= bin << shift;
      mask |= uint32_t{kBins - 1} << shift;
    }
    return {key_logit(prefix), wanted - before};
  }

  // The cut that keeps tokens while those before weigh less than `wanted`.
  [[nodiscard]] TANDEM_ANYWHERE LogitCut cut_by_weight(double wanted) const {
    uint32_t prefix = 0;
    uint32_t mask = 0;
    double before = 0.0;
    LogitCut cut;
    for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
      double sums[kBins] = {};
      int64_t counts[kBins] = {};
      for (int64_t i = 0; i < count_; ++i) {
        const uint32_t key = order_key(x_[i]);
        if ((key & mask) == prefix) {
          sums[(key >> shift) % kBins] += static_cast<double>(weight(i));
          ++counts[(key >> shift) % kBins];
        }
      }
      // The lowest bin in use, should rounding keep the sum below `wanted`.
      uint32_t lowest = 0;
      while (counts[lowest] == 0) {
        ++lowest;
      }
      uint32_t bin = kBins - 1;
      while (bin > lowest && (counts[bin] == 0 || before + sums[bin] < wanted)) {
        before += sums[bin--];
      }
      prefix |= bin << shift;
      mask |= uint32_t{kBins - 1} << shift;
      cut.ties = ties_within(wanted - before, sums[bin], counts[bin]);
    }
    cut.logit = key_logit(prefix);
    return cut;
  }

  // How many of `count` equal weights with this sum it takes to weigh `wanted`: at least 1.
  static TANDEM_ANYWHERE int64_t ties_within(double wanted, double sum, int64_t count) {
    if (!(wanted < sum)) {
      return count;
    }
    const double needed = std::ceil(wanted / (sum / static_cast<double>(count)));
    return needed < 1.0
               ? 1
               : (needed > static_cast<double>(count) ? count : static_cast<int64_t>(needed));
  }

  // The first token at which the running sum of weights exceeds u times the total.
  [[nodiscard]] TANDEM_ANYWHERE int32_t draw_from_row(double u) const {
    const double wanted = u * total_weight();
    double mass = 0.0;
    int64_t last_chunk = 0;
    for (int64_t chunk = 0; chunk < count_; chunk += kernels::kSampleChunk) {
      const auto weight = static_cast<double>(chunk_weight(chunk));
      if (mass + weight > wanted) {
        return draw_from_chunk(chunk, wanted - mass);
      }
      last_chunk = weight > 0.0 ? chunk : last_chunk;
      mass += weight;
    }
    return draw_from_chunk(last_chunk, INFINITY);  // the running sum was rounded below the total
  }
  // Or the chunk's last of any weight.
  [[nodiscard]] TANDEM_ANYWHERE int32_t draw_from_chunk(int64_t begin, double wanted) const {
    double mass = 0.0;
    int64_t last = begin;
    for (int64_t i = begin; i < begin + kernels::kSampleChunk && i < count_; ++i) {
      const float own = weight(i);
      mass += static_cast<double>(own);
      last = own > 0.0F ? i : last;
      if (mass > wanted) {
        break;
      }
    }
    return static_cast<int32_t>(last);
  }

  float* x_;
  int64_t count_;
  const kernels::SampleRow& spec_;
  float max_ = -INFINITY;
  int32_t highest_ = 0;
  float inverse_temperature_ = 1.0F;
};

struct Draw {
  kernels::SampleArgs args;
  [[nodiscard]] TANDEM_ANYWHERE int64_t count() const { return args.row_count; }
  TANDEM_ANYWHERE void operator()(int64_t row) const {
    DrawnRow drawn(args.logits + row * args.stride, args.vocabulary, args.rows[row]);
    drawn.run(args.results[row]);
    if (args.tokens != nullptr) {
      args.tokens[row] = args.results[row].token;
    }
  }
};

inline auto kernels_of(const SampleOp& op) {
  return std::tuple{AddBiases{op}, Ban{op}, PenalizeRepetition{op}, PenalizeCounts{op}, Draw{op}};
}

}  // namespace tandem::device::cuda
