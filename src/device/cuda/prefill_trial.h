// Tries kernels that attend prompts (flash/flash_kernels.h) against others that are known to be
// right, on problems of its own, before anything is served: do they agree, and from which size on
// are they quicker?
//
// First some short sequences with and without tokens before them, then single prompts that grow
// with the GPU, so that its multiprocessors have almost a tile, two and four tiles each. All
// results are compared, the prompts are timed, too. Queries, keys and values are random, pages lie
// in random order.
//
// Threads: one. It waits for the GPU, but never longer than `patience` at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/cuda/flash/flash_kernels.h"

namespace tandem::device::cuda {

struct PrefillTrial {
  flash::Kernels usual = flash::kAmpere;  // known to be right
  flash::Kernels tried = flash::kHopper;
  int32_t head_dim = 0;
  int32_t processors = 0;     // the GPU's multiprocessors
  bool timed = true;          // false: the short sequences alone
  std::byte* room = nullptr;  // device memory of the current GPU, aligned to 256 bytes; overwritten
  int64_t room_bytes = 0;
  std::chrono::milliseconds patience{10'000};
};

struct PrefillTrialResult {
  // Both kernels' results for a head of a row may be apart by this share of their length: some
  // five times the effect of rounding to bf16. A token too many or too few shows in rows with
  // less than 2,500 tokens.
  static constexpr double kMaxDifference = 0.02;
  // The tried kernels must be quicker by more than clocks and chance explain.
  static constexpr double kMinGain = 1.05;
  static constexpr int64_t kNever = INT64_MAX;

  struct Timed {
    int64_t row_heads = 0;  // rows times heads
    double usual_us = 0;
    double tried_us = 0;
  };

  // The first error of CUDA; the rest holds what was found before. cudaErrorMemoryAllocation: the
  // room is too small for the short sequences. cudaErrorLaunchTimeout: the patience is at an end.
  cudaError_t error = cudaSuccess;
  bool lost = false;         // after an error: the GPU cannot be used any more, or does not answer
  double difference = 0;     // the largest; infinite if a result is missing or outside its place
  std::vector<Timed> timed;  // by size; large sizes are absent if the room is too small

  [[nodiscard]] bool agree() const { return difference <= kMaxDifference; }
  // The smallest size from which on the tried kernels are quicker at all sizes; or kNever.
  [[nodiscard]] int64_t pays_from() const;
};

PrefillTrialResult try_prefill(const PrefillTrial& trial);

}  // namespace tandem::device::cuda
