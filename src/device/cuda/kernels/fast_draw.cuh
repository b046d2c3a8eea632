// A block draws the token of a row, as DrawnRow (sample.h) does: the same order of filters, the
// same random number, the same sums of weights by chunks. Nothing is written to the logits: what
// the filters keep is a cut in the order "higher logit first, lower id first among equals".
#pragma once

#include <cmath>

#include "device/cuda/kernels/cooperation.cuh"
#include "device/cuda/kernels/sample.h"
#include "kernels/exp.h"
#include "kernels/sample.h"
#include "kernels/sample_rows.h"

namespace tandem::device::cuda {

inline constexpr int kSampleParts = 16;
static_assert(kSampleParts <= kernels::kMaxTopLogprobs, "they wait in the results");
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

// Shared memory of a block that draws.
struct DrawScratch {
  static constexpr int kDigitBits = 11;
  static constexpr int kBins = 1 << kDigitBits;
  static_assert(kBins >= kMaxDrawChunks);
  int32_t bins[kBins];
  float chunk_weights[kMaxDrawChunks];
  float warp_sums[kDrawThreads / kWarpThreads][8];
  double doubles[kDrawThreads / kWarpThreads];
  int32_t counts[kDrawThreads / kWarpThreads];
  double total;  // what one thread found, for all of them
  double rest;
  int32_t found;
  int32_t before;
  int32_t listed;
  int32_t tokens[kernels::kMaxTopLogprobs];
  float logits[kernels::kMaxTopLogprobs];
};

// A token is kept if its key is above `key`, or equals `key` and the token is at most `last_tie`.
struct KeptTokens {
  uint32_t key = 0;
  int32_t last_tie = INT32_MAX;
  [[nodiscard]] __device__ bool has(uint32_t own, int32_t token) const {
    return own > key || (own == key && token <= last_tie);
  }
};

// Every function is called by the whole block.
class BlockDraw {
 public:
  __device__ BlockDraw(const float* logits, int32_t vocabulary, const kernels::SampleRow& spec,
                       const Highest& highest, DrawScratch& scratch)
      : x_(logits), count_(vocabulary), spec_(spec), highest_(highest), shared_(scratch) {}

  // Thread 0 writes the result.
  __device__ void run(kernels::SampleResult& result) {
    constexpr float kColdest = 1e-20F;  // colder is greedy
    if (highest_.token < 0) {
      clear(result, -1);
      return;
    }
    const int32_t logprobs = spec_.logprobs;
    clear(result, highest_.token);
    double log_total = 0.0;
    if (logprobs >= 0) {
      log_total = std::log(total_weight());
      list_most_likely(log_total, result);
    }
    int32_t token = highest_.token;
    if (spec_.given >= 0) {
      token = spec_.given;
    } else if (spec_.temperature >= kColdest) {
      token = draw();
    }
    if (threadIdx.x == 0) {
      result.token = token;
    }
    if (logprobs >= 0) {
      const float logit = x_[token];
      const int32_t rank = rank_of(token, logit);
      if (threadIdx.x == 0) {
        result.logprob = logprob(logit, log_total);
        result.rank = rank;
      }
    }
  }

 private:
  static __device__ void clear(kernels::SampleResult& result, int32_t token) {
    if (threadIdx.x == 0) {
      result = {};
      result.token = token;
    }
  }

  // Calls work(logit, token) for this thread's share of the row. A thread asks for several logits
  // before it works on the first of them: one block has to hide the memory's latency by itself.
  __device__ void for_each(const auto& work) const {
    int32_t done = 0;  // tokens before it have been seen, by whichever thread
    if (reinterpret_cast<uintptr_t>(x_) % kVectorBytes == 0) {
      done = for_fours<4>(done, work);
      done = for_fours<1>(done, work);
    }
    for (int32_t i = done + static_cast<int32_t>(threadIdx.x); i < count_; i += kDrawThreads) {
      work(x_[i], i);
    }
  }
  // From token `begin` on, kFours times four logits of each thread at a time. Returns the first
  // token that is left.
  template <int kFours>
  __device__ int32_t for_fours(int32_t begin, const auto& work) const {
    constexpr int32_t kTokens = kFours * 4 * kDrawThreads;
    const auto thread = static_cast<int32_t>(threadIdx.x);
    for (; count_ - begin >= kTokens; begin += kTokens) {
      const auto* const fours = reinterpret_cast<const float4*>(x_ + begin);
      float4 loaded[kFours];
#pragma unroll
      for (int j = 0; j < kFours; ++j) {
        loaded[j] = fours[j * kDrawThreads + thread];
      }
#pragma unroll
      for (int j = 0; j < kFours; ++j) {
        const int32_t token = begin + (j * kDrawThreads + thread) * 4;
        work(loaded[j].x, token);
        work(loaded[j].y, token + 1);
        work(loaded[j].z, token + 2);
        work(loaded[j].w, token + 3);
      }
    }
    return begin;
  }

  [[nodiscard]] __device__ float weight_of(float logit) const {
    return kernels::exp_scalar((logit - highest_.logit) * inverse_temperature_);
  }
  // 0 of tokens that are not kept.
  [[nodiscard]] __device__ float kept_weight(float logit, int32_t token) const {
    if (!kept_.has(order_key(logit), token)) {
      return 0.0F;
    }
    const float weight = weight_of(logit);
    return logit < highest_.logit && weight < min_weight_ ? 0.0F : weight;
  }

  // Half a warp sums a chunk in kSampleLanes lanes, so the bits are the bits of the host. They
  // stay in chunk_weights.
  __device__ double total_weight() {
    constexpr int kLanes = kernels::kSampleLanes;
    constexpr int kGroups = kDrawThreads / kLanes;
    const int32_t chunks = chunk_count();
    const auto lane = static_cast<int32_t>(threadIdx.x % kLanes);
    __syncthreads();
    for (int32_t first = 0; first < chunks; first += kGroups) {  // all warps, for their sums
      const auto chunk = first + static_cast<int32_t>(threadIdx.x / kLanes);
      const int32_t begin = chunk * kDrawThreads;
      const int32_t end = begin + kDrawThreads < count_ ? begin + kDrawThreads : count_;
      float sum = 0.0F;
#pragma unroll 8
      for (int32_t i = begin + lane; i < end; i += kLanes) {
        sum += kept_weight(x_[i], i);
      }
      sum = lanes_sum<kLanes>(sum);
      if (lane == 0 && chunk < chunks) {
        shared_.chunk_weights[chunk] = sum;
      }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      double total = 0.0;
      for (int32_t chunk = 0; chunk < chunks; ++chunk) {
        total += static_cast<double>(shared_.chunk_weights[chunk]);
      }
      shared_.total = total;
    }
    __syncthreads();
    return shared_.total;
  }
  [[nodiscard]] __device__ int32_t chunk_count() const {
    return (count_ + kDrawThreads - 1) / kDrawThreads;
  }

  [[nodiscard]] __device__ float logprob(float logit, double log_total) const {
    return static_cast<float>(static_cast<double>(logit) - static_cast<double>(highest_.logit) -
                              log_total);
  }
  __device__ int32_t rank_of(int32_t token, float logit) {
    int32_t before = 0;
    for_each([&](float x, int32_t i) { before += x > logit || (i < token && x == logit) ? 1 : 0; });
    return 1 + block_sum(before, shared_.counts);
  }

  __device__ void list_most_likely(double log_total, kernels::SampleResult& result) {
    const int32_t limit = spec_.logprobs < count_ ? spec_.logprobs : count_;
    const int32_t wanted = limit < kernels::kMaxTopLogprobs ? limit : kernels::kMaxTopLogprobs;
    if (wanted <= 0) {
      return;
    }
    const KeptTokens listed = cut_by_count(wanted);
    if (threadIdx.x == 0) {
      shared_.listed = 0;
    }
    __syncthreads();
    for_each([&](float x, int32_t i) {
      if (x > -INFINITY && listed.has(order_key(x), i)) {
        const int32_t at = atomicAdd(&shared_.listed, 1);
        shared_.tokens[at] = i;
        shared_.logits[at] = x;
      }
    });
    __syncthreads();
    const int32_t count = shared_.listed;
    if (static_cast<int32_t>(threadIdx.x) < count) {  // each finds its place
      const float logit = shared_.logits[threadIdx.x];
      const int32_t token = shared_.tokens[threadIdx.x];
      int32_t place = 0;
      for (int32_t i = 0; i < count; ++i) {
        const float other = shared_.logits[i];
        place += other > logit || (other == logit && shared_.tokens[i] < token) ? 1 : 0;
      }
      result.top_tokens[place] = token;
      result.top_logprobs[place] = logprob(logit, log_total);
    }
    if (threadIdx.x == 0) {
      result.top_count = count;
    }
  }

  __device__ int32_t draw() {
    constexpr float kSmallest = 0x1p-126F;  // keeps -infinity * inverse from becoming NaN
    inverse_temperature_ = std::fmax(1.0F / spec_.temperature, kSmallest);
    if (spec_.top_k > 0 && spec_.top_k < count_) {
      kept_ = cut_by_count(spec_.top_k);
    }
    if (spec_.top_p < 1.0F) {
      kept_ = cut_by_weight(static_cast<double>(spec_.top_p) * total_weight());
    }
    min_weight_ = spec_.min_p;
    const double u = kernels::sample_uniform(spec_.seed, static_cast<uint64_t>(spec_.position));
    return draw_from_row(u * total_weight());
  }

  // The tokens that are the first `wanted` of all, which are more: the key of the last of them is
  // found digit by digit.
  __device__ KeptTokens cut_by_count(int32_t wanted) {
    constexpr int kBits = DrawScratch::kDigitBits;
    uint32_t prefix = 0;
    uint32_t mask = 0;
    int32_t before = 0;
    int32_t equal = 0;
    for (int end = 32; end > 0;) {
      const int shift = end > kBits ? end - kBits : 0;
      const uint32_t digit_mask = (1U << (end - shift)) - 1U;
      clear_bins();
      for_each([&](float x, int32_t /*token*/) {
        const uint32_t key = order_key(x);
        if ((key & mask) == prefix) {
          atomicAdd(&shared_.bins[(key >> shift) & digit_mask], 1);
        }
      });
      __syncthreads();
      find_bin(wanted - before);
      before += shared_.before;
      prefix |= static_cast<uint32_t>(shared_.found) << shift;
      mask |= digit_mask << shift;
      equal = shared_.bins[shared_.found];
      end = shift;
    }
    return {prefix, last_tie(prefix, wanted - before, equal, KeptTokens{})};
  }
  __device__ void clear_bins() {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < DrawScratch::kBins; i += kDrawThreads) {
      shared_.bins[i] = 0;
    }
    __syncthreads();
  }
  // The bin of the `wanted`-th from the top: `found`, and `before` it how many.
  __device__ void find_bin(int32_t wanted) {
    constexpr int kTop = DrawScratch::kBins - 1;
    static_assert(DrawScratch::kBins == 2 * kDrawThreads);
    const int high = kTop - 2 * static_cast<int>(threadIdx.x);
    const int32_t high_count = shared_.bins[high];
    const int32_t both = high_count + shared_.bins[high - 1];
    const int32_t before = block_inclusive_sum(both, shared_.counts) - both;
    if (before < wanted && wanted <= before + both) {
      const bool in_high = wanted <= before + high_count;
      shared_.found = in_high ? high : high - 1;
      shared_.before = in_high ? before : before + high_count;
    }
    __syncthreads();
  }

  // Of the `equal` tokens that have `key` and that `kept` has: the `ties`-th in order of id.
  __device__ int32_t last_tie(uint32_t key, int32_t ties, int32_t equal, const KeptTokens& kept) {
    if (ties >= equal) {
      return kept.key == key ? kept.last_tie : INT32_MAX;
    }
    const auto is_tie = [&](float x, int32_t i) {
      const uint32_t own = order_key(x);
      return own == key && kept.has(own, i);
    };
    clear_bins();
    for_each([&](float x, int32_t i) {
      if (is_tie(x, i)) {
        atomicAdd(&shared_.bins[i / kDrawThreads], 1);
      }
    });
    __syncthreads();
    if (threadIdx.x == 0) {
      int32_t chunk = 0;
      int32_t left = ties;
      for (; left > shared_.bins[chunk]; ++chunk) {
        left -= shared_.bins[chunk];
      }
      shared_.found = chunk;
      shared_.before = left;
    }
    __syncthreads();
    const int32_t i = shared_.found * kDrawThreads + static_cast<int32_t>(threadIdx.x);
    const int32_t left = shared_.before;
    const int32_t own = i < count_ && is_tie(x_[i], i) ? 1 : 0;
    const int32_t place = block_inclusive_sum(own, shared_.counts);
    if (own == 1 && place == left) {
      shared_.found = i;
    }
    __syncthreads();
    return shared_.found;
  }

  // Keeps tokens until the tokens before weigh `wanted`. The lowest key that is kept is the
  // highest one from which on the weights reach `wanted`, found three bits at a time.
  __device__ KeptTokens cut_by_weight(double wanted) {
    uint32_t prefix = 0;
    uint32_t mask = 0;
    double before = 0.0;  // the weight of keys above all that have the prefix
    for (int end = 32; end > 0;) {
      const int shift = end > 3 ? end - 3 : 0;
      const uint32_t digits = 1U << (end - shift);
      // sums[d]: of the keys with the prefix whose digit is at least d
      const float* sums = weigh_digits(prefix, mask, shift, digits);
      uint32_t digit = digits - 1;
      // Rounding may keep the sum below `wanted`: then the lowest digit of any weight.
      while (digit > 0 && sums[digit] < sums[0] &&
             (sums[digit] == 0.0F || before + static_cast<double>(sums[digit]) < wanted)) {
        --digit;
      }
      before += digit + 1 < digits ? static_cast<double>(sums[digit + 1]) : 0.0;
      prefix |= digit << shift;
      mask |= (digits - 1) << shift;
      end = shift;
    }
    int32_t own = 0;
    for_each([&](float x, int32_t i) {
      const uint32_t key = order_key(x);
      own += key == prefix && kept_.has(key, i) ? 1 : 0;
    });
    const int32_t equal = block_sum(own, shared_.counts);
    if (equal == 0) {  // nothing has weight: all stay
      return kept_;
    }
    const float each = weight_of(key_logit(prefix));
    const double needed = each > 0.0F ? std::ceil((wanted - before) / static_cast<double>(each))
                                      : static_cast<double>(equal);
    const int32_t ties =
        needed < 1.0 ? 1
                     : (needed > static_cast<double>(equal) ? equal : static_cast<int32_t>(needed));
    return {prefix, last_tie(prefix, ties, equal, kept_)};
  }
  __device__ const float* weigh_digits(uint32_t prefix, uint32_t mask, int shift, uint32_t digits) {
    float sums[8] = {};
    for_each([&](float x, int32_t i) {
      const uint32_t key = order_key(x);
      if ((key & mask) == prefix && kept_.has(key, i)) {
        const float weight = weight_of(x);
        const uint32_t digit = (key >> shift) & (digits - 1);
#pragma unroll
        for (uint32_t d = 0; d < 8; ++d) {
          sums[d] += digit >= d ? weight : 0.0F;
        }
      }
    });
    __syncthreads();
#pragma unroll
    for (int d = 0; d < 8; ++d) {
      const float sum = lanes_sum(sums[d]);
      if (threadIdx.x % kWarpThreads == 0) {
        shared_.warp_sums[threadIdx.x / kWarpThreads][d] = sum;
      }
    }
    __syncthreads();
    if (threadIdx.x < 8) {
      float sum = 0.0F;
      for (int warp = 0; warp < kDrawThreads / kWarpThreads; ++warp) {
        sum += shared_.warp_sums[warp][threadIdx.x];
      }
      shared_.warp_sums[0][threadIdx.x] = sum;
    }
    __syncthreads();
    return shared_.warp_sums[0];
  }

  // The first token at which the running sum of weights exceeds `wanted`; chunk_weights are the
  // kept weights.
  __device__ int32_t draw_from_row(double wanted) {
    if (threadIdx.x == 0) {
      double mass = 0.0;
      int32_t chunk = 0;
      int32_t last_chunk = 0;
      const int32_t chunks = chunk_count();
      for (; chunk < chunks; ++chunk) {
        const auto weight = static_cast<double>(shared_.chunk_weights[chunk]);
        if (mass + weight > wanted) {
          break;
        }
        last_chunk = weight > 0.0 ? chunk : last_chunk;
        mass += weight;
      }
      // Else the running sum was rounded below the total.
      shared_.found = chunk < chunks ? chunk : last_chunk;
      shared_.rest = chunk < chunks ? wanted - mass : INFINITY;
      shared_.before = INT32_MAX;
      shared_.listed = -1;
    }
    __syncthreads();
    const int32_t i = shared_.found * kDrawThreads + static_cast<int32_t>(threadIdx.x);
    const float weight = i < count_ ? kept_weight(x_[i], i) : 0.0F;
    const double mass = block_inclusive_sum(static_cast<double>(weight), shared_.doubles);
    if (weight > 0.0F) {
      atomicMax(&shared_.listed, i);  // the chunk's last of any weight
      if (mass > shared_.rest) {
        atomicMin(&shared_.before, i);
      }
    }
    __syncthreads();
    return shared_.before != INT32_MAX ? shared_.before : shared_.listed;
  }

  const float* x_;
  int32_t count_;
  const kernels::SampleRow& spec_;
  Highest highest_;
  DrawScratch& shared_;
  KeptTokens kept_;
  float inverse_temperature_ = 1.0F;
  float min_weight_ = 0.0F;
};

}  // namespace tandem::device::cuda
