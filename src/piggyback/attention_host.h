// The interface to what attends for offloaded tokens: the executor submits tasks and takes answers.
// `workers/` implements it with threads of this process; a test implements it in virtual time.
//
// Contract: every submitted task is answered once, in any order, unless it hangs. A result is
// written before its answer can be taken. Failed tasks may be submitted again under the next
// attempt number. Implementations do not know the hop core.
//
// Threads: one owner calls all functions and none of them blocks. The listener may be called on any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/element_type.h"
#include "base/result.h"
#include "kernels/kv_layout.h"
#include "piggyback/core/hop_types.h"

namespace tandem::piggyback {

// What a host attends: the model's shapes and the memory of hops and KV. `h` below is a hop row.
struct AttentionSpec {
  kernels::KvLayout layout;           // of the host's KV pool
  std::byte* kv = nullptr;            // the pool's start
  const std::byte* routed = nullptr;  // [h] kernels::RoutedRow(layout, heads), 64-byte aligned
  int64_t routed_row_bytes = 0;       // from one row to the next
  std::byte* results = nullptr;       // [h, heads, padded_head_dim], 64-byte aligned
  int64_t result_row_bytes = 0;       // from one row to the next
  ElementType result_type = ElementType::kBF16;
  int32_t heads = 0;  // of q
  float scale = 0.0F;
  std::vector<int32_t> windows = {};  // by layer, 0: all tokens; empty: no layer has a window
  // Owns the memory. Held until nothing can write to it, which may be later than the end of the
  // AttentionHost if a worker hangs.
  std::shared_ptr<const void> owner = nullptr;
};

// Sums since the start.
struct AttentionHostCounts {
  int64_t tasks = 0;  // answered, not failed
  int64_t failed = 0;
  int64_t bytes = 0;  // of K and V read
  Nanos busy{0};      // in kernels, over all workers: bytes / busy is the rate of one worker
};

// Comes with each call of the listener.
struct AnswerNotice {
  Nanos at{0};               // when the answer was ready
  bool more_follow = false;  // further answers will come even if the owner does nothing now
};
using AnswerListener = std::function<void(const AnswerNotice&)>;

class AttentionHost {
 public:
  virtual ~AttentionHost() = default;

  // What `block_table` points to stays valid until the answer is taken.
  virtual void submit(std::span<const HopTask> tasks) = 0;
  // Appends the answers since the last call.
  virtual void take_answers(std::vector<HopAnswer>& answers) = 0;
  // The attempt is not wanted any more. It is answered as failed at once, and its memory will not
  // be touched, unless a kernel is working on it; then it is answered when that kernel ends.
  virtual void withdraw(HopId hop, int32_t attempt) = 0;
  // `listener` is called after answers were added; it must be quick, and must not call the host.
  // Setting another listener, or nullptr, waits for running calls of the last one to end.
  virtual void set_listener(AnswerListener listener) = 0;
  [[nodiscard]] virtual AttentionHostCounts counts() const = 0;
  // Gives the host a moment: for an owner that waits for answers and has nothing else to do.
  virtual void rest() { std::this_thread::yield(); }
  // False: results are not computed, so it does not matter what lies in the KV.
  [[nodiscard]] virtual bool computes() const { return true; }
  // Submitted tasks that nothing works on yet.
  [[nodiscard]] virtual int64_t waiting() const = 0;
};

// Starts the host of an executor.
using AttentionHostFactory =
    std::function<Result<std::unique_ptr<AttentionHost>>(const AttentionSpec& spec)>;

}  // namespace tandem::piggyback
