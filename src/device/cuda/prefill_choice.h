// Which of FlashInfer's kernels attend chunks of prompts: those for every GPU, or those for Hopper
// (flash/flash_kernels.h), where a trial on this very GPU has found them right and quicker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/result.h"
#include "device/cuda/flash/flash_kernels.h"
#include "device/cuda/gpu_health.h"
#include "device/cuda/probe.h"

namespace tandem::device::cuda {

struct PrefillChoice {
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  // Rows times heads of a call from which Hopper's kernels serve, for heads of 64 and of 128.
  int64_t from_64 = kNever;
  int64_t from_128 = kNever;
  // Rows that the sequences of such a call have on average at least: tiles should not be empty.
  int64_t rows_each = 0;

  [[nodiscard]] bool any() const { return from_64 != kNever || from_128 != kNever; }
  // Whether Hopper's kernels serve a call of chunks of `count` sequences. A window that is longer
  // than all contexts hides nothing, any other is for the kernels of every GPU.
  [[nodiscard]] bool hopper(const flash::Shape& shape, int64_t count, int64_t rows,
                            int64_t max_context) const;
};

struct PrefillQuestion {
  Gpu gpu;
  bool flashinfer = false;    // its kernels attend at all
  std::byte* room = nullptr;  // device memory for the trial, still free; overwritten
  int64_t room_bytes = 0;
  flash::Kernels tried = flash::kHopper;
};

// Before anything is served. kPrefillVariable (cuda_device.h) may take the trial's place. Says in
// the log what was found, if there was a trial. Errors: a wrong value of the variable; kernels that
// it demands and that cannot serve; a GPU that the trial has lost, which `health` then knows.
Result<PrefillChoice> choose_prefill(const PrefillQuestion& question, GpuHealth& health);

}  // namespace tandem::device::cuda
