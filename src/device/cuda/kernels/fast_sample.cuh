// Fast kernels for SampleOp: see cooperation.cuh; sample.h defines the results.
//
// AdjustLogits, kSampleParts blocks for a row, each for a range of the vocabulary: biases, bans and
// penalties, then the range's highest logit. The kernels of fast_draw.cuh find the token.
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
  SampleBatch batch;

  __device__ void operator()(Shared& shared) const {
    const kernels::SampleArgs& args = batch.args;
    const int64_t row = blockIdx.x;
    const int64_t begin = int64_t{blockIdx.y} * batch.part;
    const int64_t end = begin + batch.part < args.vocabulary ? begin + batch.part : args.vocabulary;
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
    clear(batch.work[row]);
    store_highest(x, begin, end, batch.work[row], shared.highest);
  }

 private:
  // The share of this block.
  static __device__ void clear(SampleWork& work) {
    constexpr int kShare = kBins / kSampleParts;
    static_assert(kShare <= kMaxThreads && kBins % kSampleParts == 0);
    if (threadIdx.x < kShare) {
      const int bin = static_cast<int>(blockIdx.y) * kShare + static_cast<int>(threadIdx.x);
      work.weights[bin] = 0;
      work.counts[bin] = 0;
      work.candidate_count = 0;
    }
  }

  // All entries of a token are added in order, by the thread of the first of them.
  static __device__ void add_biases(const kernels::SampleRow& spec, float* x, int64_t begin,
                                    int64_t end) {
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

  __device__ void store_highest(const float* x, int64_t begin, int64_t end, SampleWork& work,
                                Highest* shared) const {
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
      work.highest[blockIdx.y] = own;
    }
  }
};

// The op and memory for SampleWork, of the rows that are worked on at the same time.
struct SampleInRoom {
  const SampleOp& op;
  std::byte* room = nullptr;
  int64_t room_bytes = 0;
};

// Rows `first` .. `first` + `count` - 1.
inline cudaError_t launch_batch(cudaStream_t stream, const SampleOp& op, SampleWork* work,
                                int64_t first, int64_t count) {
  constexpr int64_t kChunk = kernels::kSampleChunk;
  const int64_t chunks = (op.vocabulary + kChunk - 1) / kChunk;
  SampleBatch batch{
      .args = op,
      .work = work,
      .part = static_cast<int32_t>((chunks + kSampleParts - 1) / kSampleParts * kChunk)};
  batch.args.logits += first * op.stride;
  batch.args.rows += first;
  batch.args.results += first;
  batch.args.tokens += op.tokens == nullptr ? 0 : first;
  const dim3 rows(static_cast<unsigned>(count));
  const dim3 parts(static_cast<unsigned>(count), kSampleParts);
  cudaError_t error = launch_blocks(stream, AdjustLogits{batch}, parts, AdjustLogits::kMaxThreads);
  const auto next = [&](const auto& kernel, const dim3& grid) {
    error = error == cudaSuccess ? launch_blocks(stream, kernel, grid, kDrawThreads) : error;
  };
  if (op.greedy) {
    next(CutRows{batch}, rows);
    return error;
  }
  next(WeighTokens{batch}, parts);
  next(FindBins{batch}, rows);
  next(ListCandidates{batch}, parts);
  next(CutRows{batch}, rows);
  next(WeighKept{batch}, parts);
  next(DrawTokens{batch}, parts);
  return error;
}

inline FastResult run_fast(cudaStream_t stream, const SampleInRoom& sample) {
  const SampleOp& op = sample.op;
  const int64_t room_rows = sample.room_bytes / static_cast<int64_t>(sizeof(SampleWork));
  if (op.vocabulary > kMaxDrawTokens || op.vocabulary <= 0 || room_rows <= 0) {
    return std::nullopt;
  }
  cudaError_t error = cudaSuccess;
  for (int64_t first = 0; first < op.row_count && error == cudaSuccess; first += room_rows) {
    error = launch_batch(stream, op, reinterpret_cast<SampleWork*>(sample.room), first,
                         std::min(room_rows, op.row_count - first));
  }
  return error;
}

}  // namespace tandem::device::cuda
