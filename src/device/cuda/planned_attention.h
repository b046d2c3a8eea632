// Attention by FlashInfer's kernels (flash/flash_kernels.h) of one stream: which steps they serve,
// how a step's slices become their sequences, and where their plans lie. Steps that they do not
// serve are the plain kernels': other types than bf16, heads of other sizes, rows of results with
// gaps, a workspace that is too small.
//
// Decode rows and prefill chunks are two calls, because FlashInfer tiles a call's queries by their
// average number. The call of the chunks may be the kernels' for Hopper (prefill_choice.h).
// Results depend on the other slices of a step in the last bits.
//
// Threads: the stream's issuing thread.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "device/cuda/flash/flash_kernels.h"
#include "device/cuda/pinned_ring.h"
#include "device/cuda/prefill_choice.h"
#include "device/ops.h"

namespace tandem::device::cuda {

// Memory of the plans: the same parts in device memory for each plan of a stream, and in pinned
// memory for each plan that is on its way; and the choice of kernels for prompts.
class PlanRoom {
 public:
  static constexpr int64_t kStartsBytes = int64_t{256} << 10;  // of the sequences
  static constexpr int64_t kCallBytes = int64_t{512} << 10;    // FlashInfer's, of a call
  static constexpr int64_t kCalls = 2;
  static constexpr int64_t kPinnedBytes = kStartsBytes + kCalls * kCallBytes;
  static constexpr int64_t kPagesBytes = int64_t{8} << 20;  // block tables, in device memory alone
  static constexpr int64_t kPlanBytes = kPinnedBytes + kPagesBytes;
  static constexpr int64_t kDeviceBytes = kAttentionPlans * kPlanBytes;

  PlanRoom() = default;
  ~PlanRoom() = default;
  PlanRoom(const PlanRoom&) = delete;
  PlanRoom& operator=(const PlanRoom&) = delete;
  void place(std::byte* device, const PrefillChoice& prefill) {
    device_ = device;
    prefill_ = prefill;
  }
  [[nodiscard]] const PrefillChoice& prefill() const { return prefill_; }
  PinnedRing& on_the_way() { return on_the_way_; }

  // A stream that plans first has it for good. False: it is another's, or there is none.
  bool claim(cudaStream_t stream);
  [[nodiscard]] std::byte* device(int32_t plan) const { return device_ + plan * kPlanBytes; }
  static constexpr size_t kOnTheWay = 8;

 private:
  std::byte* device_ = nullptr;
  PrefillChoice prefill_;
  PinnedRing on_the_way_;  // kOnTheWay pieces of kPinnedBytes
  cudaStream_t owner_ = nullptr;
};

class PlannedAttention {
 public:
  // Whether FlashInfer serves heads of this layout, and the workspace that it needs.
  static bool serves(const kernels::KvLayout& layout);
  static int64_t workspace_bytes(const kernels::KvLayout& layout, int32_t heads);

  // Plans a step if FlashInfer serves it, for the plan number of the batch.
  cudaError_t plan(PlanRoom& room, cudaStream_t stream, const AttentionBatch& batch);
  // Runs it as planned; false: the plain kernels are to.
  [[nodiscard]] bool has(const AttentionOp& op) const;
  cudaError_t run(const PlanRoom& room, cudaStream_t stream, const AttentionOp& op) const;

 private:
  // Consecutive slices in one call.
  struct Call {
    flash::Shape shape;
    flash::Sequences sequences;  // in device memory
    flash::Kernels kernels = flash::kAmpere;
    flash::Plan plan{};
    int64_t first_row = 0;
  };
  struct Step {
    int32_t call_count = 0;  // 0: not planned
    std::array<Call, PlanRoom::kCalls> calls;
  };
  class Planning;

  std::array<Step, kAttentionPlans> steps_;
  bool warned_ = false;
};

}  // namespace tandem::device::cuda
