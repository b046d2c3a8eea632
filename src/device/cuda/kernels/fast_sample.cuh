// Fast kernels for SampleOp: see cooperation.cuh; sample.h defines the results.
//
// 1. AdjustLogits: kSampleParts blocks per row, each for a range of the vocabulary. Biases, bans
//    and penalties, then the range's highest logit, which waits in the row's result.
// 2. FastDraw: a block per row. A greedy row without log-probabilities only merges step 1; others
//    pass over the logits as DrawnRow does, in fast_draw.cuh.
#pragma once

#include "device/cuda/kernels/cooperation.cuh"
#include "device/cuda/kernels/fast_draw.cuh"
#include "device/cuda/kernels/fast_rowwise.cuh"
#include "device/cuda/kernels/launch_blocks.cuh"
#include "device/cuda/kernels/sample.h"

namespace tandem::device::cuda {

struct AdjustLogits {
  static constexpr int kMaxThreads = 512;
  static constexpr int32_t kTableTokens = 8192;
  static constexpr uint32_t kSeen = 0x80000000U;  // in the table, beside the count in the output
  struct Shared {
    uint32_t table[kTableTokens];
    Highest highest[kMaxThreads / kWarpThreads];
  };
  kernels::SampleArgs args;
  int64_t part = 0;  // logits of a block, a multiple of 4

  __device__ void operator()(Shared& shared) const {
    const int64_t row = blockIdx.x;
    const int64_t begin = blockIdx.y * part;
    const int64_t end = begin + part < args.vocabulary ? begin + part : args.vocabulary;
    const kernels::SampleRow& spec = args.rows[row];
    float* x = args.logits + row * args.stride;
    if (spec.bias_count > 0 || spec.banned_count > 0) {
      add_biases(spec, x, begin, end);
      __syncthreads();
      for (int64_t i = threadIdx.x; i < spec.banned_count; i += blockDim.x) {
        const int32_t token = spec.banned[i];
        if (token >= begin && token < end) {
          x[token] = -INFINITY;
        }
      }
      __syncthreads();
    }
    if (spec.repetition_penalty != 1.0F || spec.presence_penalty != 0.0F ||
        spec.frequency_penalty != 0.0F) {
      for (int64_t first = begin; first < end; first += kTableTokens) {
        penalize(spec, x, first, first + kTableTokens < end ? first + kTableTokens : end,
                 shared.table);
      }
    }
    store_highest(x, begin, end, args.results[row], shared.highest);
  }

 private:
  // All entries of a token are added in order, by the thread of the first of them.
  __device__ void add_biases(const kernels::SampleRow& spec, float* x, int64_t begin,
                             int64_t end) const {
    for (int64_t i = threadIdx.x; i < spec.bias_count; i += blockDim.x) {
      const int32_t token = spec.biases[i].token;
      if (token < begin || token >= end) {
        continue;
      }
      int64_t earlier = 0;
      while (earlier < i && spec.biases[earlier].token != token) {
        ++earlier;
      }
      if (earlier < i) {
        continue;
      }
      float logit = x[token];
      for (int64_t later = i; later < spec.bias_count; ++later) {
        if (spec.biases[later].token == token) {
          logit += spec.biases[later].bias;
        }
      }
      x[token] = logit;
    }
  }

  // Tokens begin .. end - 1, at most kTableTokens.
  __device__ void penalize(const kernels::SampleRow& spec, float* x, int64_t begin, int64_t end,
                           uint32_t* table) const {
    for (int64_t i = threadIdx.x; i < kTableTokens; i += blockDim.x) {
      table[i] = 0;
    }
    __syncthreads();
    const TokenHistory history{spec};
    const bool repetition = spec.repetition_penalty != 1.0F;
    // Where only the output counts, the prompt's tokens need not be there.
    const int64_t first = repetition ? 0 : spec.prompt_tokens;
    const int64_t last = spec.prompt_tokens + spec.output_tokens;
    for (int64_t p = first + threadIdx.x; p < last; p += blockDim.x) {
      const int32_t token = history[p];
      if (token >= begin && token < end) {
        uint32_t* const entry = table + (token - begin);
        if (p >= spec.prompt_tokens) {
          atomicAdd(entry, 1U);
        }
        if (repetition) {
          atomicOr(entry, kSeen);
        }
      }
    }
    __syncthreads();
    const bool counts = spec.presence_penalty != 0.0F || spec.frequency_penalty != 0.0F;
    for (int64_t token = begin + threadIdx.x; token < end; token += blockDim.x) {
      const uint32_t entry = table[token - begin];
      if (entry == 0) {
        continue;
      }
      float logit = x[token];
      if ((entry & kSeen) != 0) {
        logit = logit > 0.0F ? logit / spec.repetition_penalty : logit * spec.repetition_penalty;
      }
      const uint32_t times = entry & ~kSeen;
      if (counts && times > 0) {
        logit -= spec.frequency_penalty * static_cast<float>(times) + spec.presence_penalty;
      }
      x[token] = logit;
    }
    __syncthreads();
  }

  __device__ void store_highest(const float* x, int64_t begin, int64_t end,
                                kernels::SampleResult& result, Highest* shared) const {
    Highest own;
    const int64_t count = end - begin;
    const bool aligned = reinterpret_cast<uintptr_t>(x + begin) % kVectorBytes == 0;
    const int64_t fours = aligned ? count / 4 : 0;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < fours; i += blockDim.x) {
      const float4 four = reinterpret_cast<const float4*>(x + begin)[i];
      const auto first = static_cast<int32_t>(begin + i * 4);
      own.see(four.x, first);
      own.see(four.y, first + 1);
      own.see(four.z, first + 2);
      own.see(four.w, first + 3);
    }
#pragma unroll 4
    for (int64_t i = fours * 4 + threadIdx.x; i < count; i += blockDim.x) {
      own.see(x[begin + i], static_cast<int32_t>(begin + i));
    }
    own = own.of_warp();
    if (threadIdx.x % kWarpThreads == 0) {
      shared[threadIdx.x / kWarpThreads] = own;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      for (unsigned warp = 1; warp < blockDim.x / kWarpThreads; ++warp) {
        own.merge(shared[warp]);
      }
      result.top_logprobs[blockIdx.y] = own.logit;
      result.top_tokens[blockIdx.y] = own.token;
    }
  }
};

struct FastDraw {
  static constexpr int kMaxThreads = kDrawThreads;
  using Shared = DrawScratch;
  kernels::SampleArgs args;

  __device__ void operator()(Shared& scratch) const {
    const int64_t row = blockIdx.x;
    kernels::SampleResult& result = args.results[row];
    Highest highest;
    for (int part = 0; part < kSampleParts; ++part) {
      highest.merge({result.top_logprobs[part], result.top_tokens[part]});
    }
    __syncthreads();  // all have read what the result held
    BlockDraw drawn(args.logits + row * args.stride, static_cast<int32_t>(args.vocabulary),
                    args.rows[row], highest, scratch);
    drawn.run(result);
    if (threadIdx.x == 0 && args.tokens != nullptr) {
      args.tokens[row] = result.token;
    }
  }
};

inline FastResult run_fast(cudaStream_t stream, const SampleOp& op) {
  if (op.vocabulary > kMaxDrawTokens || op.vocabulary <= 0) {
    return std::nullopt;
  }
  if (op.row_count <= 0) {
    return cudaSuccess;
  }
  const int64_t part = ((op.vocabulary + kSampleParts - 1) / kSampleParts + 3) / 4 * 4;
  const auto rows = static_cast<unsigned>(op.row_count);
  const cudaError_t error = launch_blocks(stream, AdjustLogits{op, part}, dim3(rows, kSampleParts),
                                          AdjustLogits::kMaxThreads);
  return error != cudaSuccess ? error
                              : launch_blocks(stream, FastDraw{op}, dim3(rows), kDrawThreads);
}

}  // namespace tandem::device::cuda
