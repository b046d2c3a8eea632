// The kernels that draw tokens (fast_draw.cuh), several blocks for a row, leave their findings to
// each other in device memory: SampleWork. This file has that memory, and how a block works on it.
//
// Filters cut the order of tokens, "higher logit first, lower id first among equals". Where a cut
// lies is found by bins: first of the distance from the highest logit, then, among the tokens of
// one bin, of keys. Amounts in bins are integers, counts or weights in fixed point, so that their
// sums do not depend on the order in which threads add.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>

#include "device/cuda/kernels/cooperation.cuh"
#include "device/cuda/kernels/sample.h"
#include "kernels/exp.h"
#include "kernels/sample.h"
#include "kernels/sample_rows.h"

namespace tandem::device::cuda {

inline constexpr int kSampleParts = 16;  // blocks that share a row
inline constexpr int kDrawThreads = 1024;
static_assert(kDrawThreads == kernels::kSampleChunk);
inline constexpr int kMaxDrawChunks = 1024;
inline constexpr int64_t kMaxDrawTokens = kMaxDrawChunks * kernels::kSampleChunk;

// The highest logit and the lowest token that has it. A NaN or +infinity is the token kBroken,
// which stays; none but -infinity is kNone.
struct Highest {
  static constexpr int32_t kNone = -1;
  static constexpr int32_t kBroken = -2;
  float logit = -INFINITY;
  int32_t token = kNone;

  // For tokens in rising order.
  __device__ void see(float x, int32_t i) {
    if (x > logit) {
      logit = x;
      token = token == kBroken ? kBroken : i;
    }
    token = x < INFINITY ? token : kBroken;
  }
  __device__ void merge(const Highest& other) {
    if (token == kBroken || other.token == kBroken) {
      token = kBroken;
    } else if (other.logit > logit ||
               (other.logit == logit && other.token >= 0 && (other.token < token || token < 0))) {
      *this = other;
    }
  }
  [[nodiscard]] __device__ Highest of_warp() const {
    Highest all = *this;
#pragma unroll
    for (int distance = kWarpThreads / 2; distance > 0; distance /= 2) {
      all.merge({__shfl_xor_sync(kWholeWarp, all.logit, distance),
                 __shfl_xor_sync(kWholeWarp, all.token, distance)});
    }
    return all;
  }
};

// A token is kept if its key is above `key`, or equals `key` and the token is at most `last_tie`.
struct KeptTokens {
  uint32_t key = 0;
  int32_t last_tie = INT32_MAX;
  [[nodiscard]] __device__ bool has(uint32_t own, int32_t token) const {
    return own > key || (own == key && token <= last_tie);
  }
};

// ---------------------------------------------------------------- bins

inline constexpr int kBinBits = 11;
inline constexpr int kBins = 1 << kBinBits;
static_assert(kBins >= kMaxDrawChunks && kBins == 2 * kDrawThreads);

// Of a logit this far below the highest: 256 bins of equal width from 0 to 1, 256 of twice the
// width from 1 to 3, and so on to 255; the last has all beyond.
__device__ inline int bin_of(float distance) {
  constexpr int kShift = 15;
  constexpr auto kOne = std::bit_cast<uint32_t>(1.0F);
  const uint32_t bin = (std::bit_cast<uint32_t>(distance + 1.0F) - kOne) >> kShift;
  return bin < kBins ? static_cast<int>(bin) : kBins - 1;
}

// Weights, at most 1 each, in fixed point: the sum of a row fits into 64 bits.
inline constexpr int kFixedBits = 43;
static_assert(kMaxDrawTokens <= int64_t{1} << (63 - kFixedBits));
inline constexpr double kFixedOne = double{int64_t{1} << kFixedBits};
__device__ inline uint64_t fixed(float weight) {
  return static_cast<uint64_t>(weight * static_cast<float>(kFixedOne));
}
// The amount that reaches `weight`: 1 .. `available`.
__device__ inline uint64_t fixed_target(double weight, uint64_t available) {
  const double amount = std::ceil(weight * kFixedOne);
  if (!(amount > 1.0)) {
    return 1;
  }
  return amount < static_cast<double>(available) ? static_cast<uint64_t>(amount) : available;
}

// Amounts of 64 bits in a block's shared memory, added by halves.
struct WideBins {
  uint32_t low[kBins];
  uint32_t high[kBins];

  __device__ void add(int bin, uint64_t amount) {
    const auto low_part = static_cast<uint32_t>(amount);
    const uint32_t carry = atomicAdd(&low[bin], low_part) > ~low_part ? 1 : 0;
    const uint32_t high_part = static_cast<uint32_t>(amount >> 32) + carry;
    if (high_part != 0) {
      atomicAdd(&high[bin], high_part);
    }
  }
  __device__ void set(int bin, uint64_t amount) {
    low[bin] = static_cast<uint32_t>(amount);
    high[bin] = static_cast<uint32_t>(amount >> 32);
  }
  [[nodiscard]] __device__ uint64_t at(int bin) const {
    return uint64_t{high[bin]} << 32 | low[bin];
  }
};

// Bins and the search in them. Functions are called by the whole block.
struct BinSearch {
  WideBins bins;  // from sum_up() on: the amount of all bins up to this
  uint64_t sums[kDrawThreads / kWarpThreads];
  uint64_t before;  // the amount in bins before `found`
  int32_t found;

  template <class Amount>
  __device__ void load(const Amount* amounts) {
    set([amounts](int bin) -> uint64_t { return amounts[bin]; });
    sum_up();
  }
  __device__ void clear() {
    set([](int /*bin*/) -> uint64_t { return 0; });
  }
  __device__ void sum_up() {
    const int first = 2 * static_cast<int>(threadIdx.x);
    __syncthreads();
    const uint64_t first_amount = bins.at(first);
    const uint64_t both = first_amount + bins.at(first + 1);
    const uint64_t start = block_inclusive_sum(both, sums) - both;
    bins.set(first, start + first_amount);
    bins.set(first + 1, start + both);
    __syncthreads();
  }
  // Of the bins that are summed up.
  [[nodiscard]] __device__ uint64_t sum_before(int end) const {
    return end == 0 ? 0 : bins.at(end - 1);
  }
  // The bin with which the amount from bin 0 on reaches `wanted`: at least 1, at most all.
  __device__ void find(uint64_t wanted) {
    __syncthreads();
    for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kDrawThreads) {
      if (sum_before(bin) < wanted && wanted <= bins.at(bin)) {
        found = bin;
        before = sum_before(bin);
      }
    }
    __syncthreads();
  }

 private:
  __device__ void set(const auto& amount) {
    __syncthreads();
    for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kDrawThreads) {
      bins.set(bin, amount(bin));
    }
    __syncthreads();
  }
};

// ---------------------------------------------------------------- memory of a row

struct Candidate {
  float logit;
  int32_t token;
};
inline constexpr int32_t kMaxCandidates = 8192;

// Bins in which a cut may lie, or tokens that are to be listed.
struct CandidateBins {
  int32_t last_listed = -1;  // bins 0 .. last_listed
  int32_t count_cut = -1;    // and this
  int32_t first_weight_cut = 0;
  int32_t last_weight_cut = -1;  // and first_weight_cut .. last_weight_cut
  [[nodiscard]] __device__ bool has(int bin) const {
    return bin <= last_listed || bin == count_cut ||
           (first_weight_cut <= bin && bin <= last_weight_cut);
  }
};

struct SampleWork {
  Highest highest[kSampleParts];        // of each part
  unsigned long long weights[kBins];    // by distance, at the row's temperature
  uint32_t counts[kBins];               // likewise
  float plain_weights[kMaxDrawChunks];  // of chunks, at temperature 1
  float chunk_weights[kMaxDrawChunks];  // at the row's temperature; in the end of kept tokens alone
  CandidateBins candidate_bins;
  bool all_listed;  // the tokens of candidate_bins are all in `candidates`
  int32_t candidate_count;
  KeptTokens kept;
  double log_total;  // of plain_weights
  Candidate candidates[kMaxCandidates];
};

// The arguments of all kernels.
struct SampleBatch {
  kernels::SampleArgs args;
  SampleWork* work = nullptr;  // of each row
  int32_t part = 0;            // tokens of a part, whole chunks
};

// A row as its blocks see it, once its logits are adjusted.
struct SampledRow {
  __device__ SampledRow(const SampleBatch& batch, int64_t row)
      : x(batch.args.logits + row * batch.args.stride),
        count(static_cast<int32_t>(batch.args.vocabulary)),
        spec(batch.args.rows[row]),
        work(batch.work[row]) {
    constexpr float kColdest = 1e-20F;      // colder is greedy
    constexpr float kSmallest = 0x1p-126F;  // keeps -infinity * inverse from becoming NaN
#pragma unroll
    for (const Highest& part : work.highest) {
      highest.merge(part);
    }
    usable = highest.token >= 0;
    reports = usable && spec.logprobs >= 0;
    draws = usable && spec.given < 0 && spec.temperature >= kColdest;
    if (reports) {
      const int32_t limit = spec.logprobs < count ? spec.logprobs : count;
      listed = limit < kernels::kMaxTopLogprobs ? limit : kernels::kMaxTopLogprobs;
    }
    if (draws) {
      inverse_temperature = std::fmax(1.0F / spec.temperature, kSmallest);
      top_k = spec.top_k > 0 && spec.top_k < count ? spec.top_k : 0;
      top_p = spec.top_p < 1.0F;
    }
  }

  [[nodiscard]] __device__ bool needs_bins() const { return listed > 0 || top_k > 0 || top_p; }
  [[nodiscard]] __device__ int32_t chunk_count() const {
    return (count + kDrawThreads - 1) / kDrawThreads;
  }
  [[nodiscard]] __device__ int bin(float logit) const { return bin_of(highest.logit - logit); }
  [[nodiscard]] __device__ float weight(float logit) const {
    return kernels::exp_scalar((logit - highest.logit) * inverse_temperature);
  }
  [[nodiscard]] __device__ float plain_weight(float logit) const {
    return kernels::exp_scalar(logit - highest.logit);
  }

  [[nodiscard]] __device__ float logprob(float logit, double log_total) const {
    return static_cast<float>(static_cast<double>(logit) - static_cast<double>(highest.logit) -
                              log_total);
  }

  const float* x;
  int32_t count;  // of tokens
  const kernels::SampleRow& spec;
  SampleWork& work;
  Highest highest;
  bool usable = false;   // there is a highest logit
  bool reports = false;  // log-probabilities
  bool draws = false;
  int32_t listed = 0;  // the most likely tokens that are reported
  float inverse_temperature = 1.0F;
  int32_t top_k = 0;  // 0: off
  bool top_p = false;
};

// ---------------------------------------------------------------- passes over a part

// Four neighbouring tokens for each thread of a block.
inline constexpr int32_t kStepTokens = 4 * kDrawThreads;

struct FourLogits {
  float at[4];
  int32_t first;  // token
  int32_t count;  // of tokens before the part's end, at most 4; the others are -infinity

  __device__ FourLogits(const float* x, int32_t token, int32_t end)
      : first(token), count(end - token < 4 ? end - token : 4) {
    if (count == 4 && reinterpret_cast<uintptr_t>(x + token) % kVectorBytes == 0) {
      const float4 four = *reinterpret_cast<const float4*>(x + token);
      at[0] = four.x, at[1] = four.y, at[2] = four.z, at[3] = four.w;
      return;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      at[j] = j < count ? x[token + j] : -INFINITY;
    }
  }
};

// What a block does with its part of a row: step(FourLogits) for all threads, then the next tokens.
struct PartOfRow {
  int32_t begin;
  int32_t end;
  __device__ PartOfRow(const SampledRow& row, int32_t part)
      : begin(static_cast<int32_t>(blockIdx.y) * part),
        end(begin + part < row.count ? begin + part : row.count) {}
  [[nodiscard]] __device__ bool empty() const { return begin >= end; }
  __device__ void for_each(const SampledRow& row, const auto& step) const {
    const int32_t own = 4 * static_cast<int32_t>(threadIdx.x);
#pragma unroll 2
    for (int32_t first = begin; first < end; first += kStepTokens) {
      step(FourLogits(row.x, first + own, end), first);
    }
  }
};

// The sums of a step's weights by chunks go to `chunks`, as far as the part goes. Each chunk is
// summed in kSampleLanes lanes, so the bits are the bits of the host. `staged` has room for a step.
__device__ inline void sum_step(const FourLogits& four, int32_t first, int32_t end,
                                const auto& weight, float* staged, float* chunks) {
  constexpr int kLanes = kernels::kSampleLanes;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  __syncthreads();  // earlier sums are made
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    staged[4 * thread + j] = j < four.count ? weight(four.at[j], four.first + j) : 0.0F;
  }
  __syncthreads();
  constexpr int kSumming = kStepTokens / kDrawThreads * kLanes;
  static_assert(kSumming % kWarpThreads == 0);
  if (thread < kSumming) {
    const int32_t begin = thread / kLanes * kDrawThreads;
    float sum = 0.0F;
#pragma unroll 8
    for (int32_t i = begin + thread % kLanes; i < begin + kDrawThreads; i += kLanes) {
      sum += staged[i];
    }
    sum = lanes_sum<kLanes>(sum);
    if (thread % kLanes == 0 && first + begin < end) {
      chunks[(first + begin) / kDrawThreads] = sum;
    }
  }
}

}  // namespace tandem::device::cuda
