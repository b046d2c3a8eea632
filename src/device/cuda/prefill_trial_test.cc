#include "device/cuda/prefill_trial.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "support/sizes.h"

namespace tandem::device::cuda {
namespace {

using flash::Kernels;
using flash::Operands;
using flash::Plan;
using flash::Room;
using flash::Sequences;
using flash::Shape;

// The GPU's time, which kernels move on.
std::atomic<int64_t> g_now{0};

cudaError_t run_for(std::chrono::microseconds time, cudaStream_t stream, cudaError_t error) {
  stream->push([time] { g_now += std::chrono::nanoseconds(time).count(); });
  return error;
}

cudaError_t run_usual(cudaStream_t stream, const Shape& shape, const Sequences& sequences,
                      const Room& room, const Plan& plan, const Operands& operands) {
  return run_for(std::chrono::microseconds(10 * sequences.rows), stream,
                 flash::run(stream, shape, sequences, room, plan, operands));
}
// Quicker from 11 rows on, then again slower from 90 on.
cudaError_t run_tried(cudaStream_t stream, const Shape& shape, const Sequences& sequences,
                      const Room& room, const Plan& plan, const Operands& operands) {
  const int64_t us = sequences.rows < 90 ? 100 + sequences.rows : 20 * sequences.rows;
  return run_for(std::chrono::microseconds(us), stream,
                 flash::run(stream, shape, sequences, room, plan, operands));
}
cudaError_t run_with_wrong_scale(cudaStream_t stream, const Shape& shape,
                                 const Sequences& sequences, const Room& room, const Plan& plan,
                                 const Operands& operands) {
  Operands wrong = operands;
  wrong.scale *= 1.1F;
  return flash::run(stream, shape, sequences, room, plan, wrong);
}
cudaError_t run_not_at_all(cudaStream_t, const Shape&, const Sequences&, const Room&, const Plan&,
                           const Operands&) {
  return cudaSuccess;
}
cudaError_t run_too_far(cudaStream_t stream, const Shape& shape, const Sequences& sequences,
                        const Room& room, const Plan& plan, const Operands& operands) {
  stream->push([end = operands.out + int64_t{sequences.rows} * shape.heads * shape.head_dim] {
    end[100] = f32_to_bf16(1.0F);
  });
  return flash::run(stream, shape, sequences, room, plan, operands);
}
cudaError_t run_into_a_fault(cudaStream_t stream, const Shape&, const Sequences&, const Room&,
                             const Plan&, const Operands&) {
  cuda_on_host::fail({.in = cuda_on_host::GpuFault::In::kKernel});
  cuda_on_host::enqueue(stream, [] {});
  return cudaGetLastError();
}
cudaError_t run_too_long(cudaStream_t stream, const Shape&, const Sequences&, const Room&,
                         const Plan&, const Operands&) {
  stream->push([] { std::this_thread::sleep_for(std::chrono::milliseconds(300)); });
  return cudaSuccess;
}
cudaError_t plan_nothing(cudaStream_t, const Shape&, const Sequences&, const Room&, Plan&) {
  return cudaErrorInvalidValue;
}

class PrefillTrialOnHost : public testing::Test {
 protected:
  PrefillTrialOnHost() {
    void* room = nullptr;
    EXPECT_EQ(cudaMalloc(&room, kRoomBytes), cudaSuccess);
    trial_ = {.usual = {flash::plan, run_usual},
              .tried = {flash::plan, run_tried},
              .head_dim = 64,
              .processors = 1,
              .room = static_cast<std::byte*>(room),
              .room_bytes = kRoomBytes};
    cuda_on_host::set_gpu_clock([] { return std::chrono::nanoseconds(g_now); });
  }
  ~PrefillTrialOnHost() override {
    cuda_on_host::set_gpu_clock({});
    EXPECT_EQ(cudaFree(trial_.room), cudaSuccess);
  }
  PrefillTrialResult try_run(decltype(&flash::run) run) {
    trial_.tried.run_call = run;
    return try_prefill(trial_);
  }

  static constexpr int64_t kRoomBytes = 48 * kMiB;
  PrefillTrial trial_;
};

TEST_F(PrefillTrialOnHost, FindsTheSizeFromWhichOnKernelsAreQuicker) {
  for (const int32_t head_dim : {64, 128}) {
    trial_.head_dim = head_dim;
    const PrefillTrialResult result = try_prefill(trial_);
    EXPECT_EQ(result.error, cudaSuccess);
    EXPECT_FALSE(result.lost);
    EXPECT_EQ(result.difference, 0);
    ASSERT_EQ(result.timed.size(), 3U);
    EXPECT_EQ(result.timed[0].row_heads, 7 * 16);
    EXPECT_NEAR(result.timed[0].usual_us, 70, 1e-3);
    EXPECT_NEAR(result.timed[0].tried_us, 107, 1e-3);
    EXPECT_NEAR(result.timed[2].usual_us, 320, 1e-3);
    EXPECT_NEAR(result.timed[2].tried_us, 132, 1e-3);
    EXPECT_EQ(result.pays_from(), 16 * 16);
  }
}

TEST_F(PrefillTrialOnHost, KernelsThatAreSlowerAtTheLargestSizeNeverPay) {
  trial_.processors = 3;  // 21, 48 and 96 rows
  const PrefillTrialResult result = try_prefill(trial_);
  ASSERT_EQ(result.timed.size(), 3U);
  EXPECT_GT(result.timed[1].usual_us, result.timed[1].tried_us);
  EXPECT_EQ(result.pays_from(), PrefillTrialResult::kNever);
}

TEST_F(PrefillTrialOnHost, UntimedItComparesAlone) {
  trial_.timed = false;
  const PrefillTrialResult result = try_prefill(trial_);
  EXPECT_EQ(result.error, cudaSuccess);
  EXPECT_TRUE(result.agree());
  EXPECT_TRUE(result.timed.empty());
  EXPECT_EQ(result.pays_from(), PrefillTrialResult::kNever);
}

TEST_F(PrefillTrialOnHost, WrongMissingAndMisplacedResultsDoNotAgree) {
  const PrefillTrialResult wrong = try_run(run_with_wrong_scale);
  EXPECT_EQ(wrong.error, cudaSuccess);
  EXPECT_FALSE(wrong.agree());
  EXPECT_LT(wrong.difference, 1) << "a moderate mistake";
  EXPECT_TRUE(wrong.timed.empty());
  for (const auto run : {run_not_at_all, run_too_far}) {
    const PrefillTrialResult result = try_run(run);
    EXPECT_EQ(result.error, cudaSuccess);
    EXPECT_TRUE(std::isinf(result.difference));
    EXPECT_FALSE(result.agree());
  }
}

TEST_F(PrefillTrialOnHost, AnErrorOfACallIsNoLossOfTheGpu) {
  trial_.tried.plan_call = plan_nothing;
  const PrefillTrialResult result = try_prefill(trial_);
  EXPECT_EQ(result.error, cudaErrorInvalidValue);
  EXPECT_FALSE(result.lost);
}

TEST_F(PrefillTrialOnHost, AFaultLosesTheGpu) {
  const PrefillTrialResult result = try_run(run_into_a_fault);
  EXPECT_EQ(result.error, cudaErrorLaunchFailure);
  EXPECT_TRUE(result.lost);
  cuda_on_host::mend();
}

TEST_F(PrefillTrialOnHost, KernelsThatDoNotEndLoseTheGpu) {
  trial_.patience = std::chrono::milliseconds(30);
  trial_.usual.run_call = run_too_long;  // else it may still write when the room is freed
  const PrefillTrialResult result = try_run(run_too_long);
  EXPECT_EQ(result.error, cudaErrorLaunchTimeout);
  EXPECT_TRUE(result.lost);
  cuda_on_host::mend();
}

TEST_F(PrefillTrialOnHost, ASmallRoomIsNotLeft) {
  trial_.room_bytes = kMiB;
  const PrefillTrialResult none = try_prefill(trial_);
  EXPECT_EQ(none.error, cudaErrorMemoryAllocation);
  EXPECT_FALSE(none.lost);
  trial_.room_bytes = kRoomBytes;
  trial_.processors = 2000;  // prompts of 8,000 rows
  const PrefillTrialResult untimed = try_prefill(trial_);
  EXPECT_EQ(untimed.error, cudaSuccess);
  EXPECT_TRUE(untimed.agree());
  EXPECT_TRUE(untimed.timed.empty());
}

}  // namespace
}  // namespace tandem::device::cuda
