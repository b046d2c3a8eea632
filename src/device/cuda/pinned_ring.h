// Pieces of pinned host memory that copies to the GPU read, in turn: a piece is written again once
// the copy from it has passed. Taken once, before serving.
//
// Threads: one at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem::device::cuda {

class PinnedRing {
 public:
  PinnedRing() = default;
  ~PinnedRing() = default;  // after end(), unless the GPU has failed
  PinnedRing(const PinnedRing&) = delete;
  PinnedRing& operator=(const PinnedRing&) = delete;

  cudaError_t take(size_t pieces, int64_t piece_bytes);
  [[nodiscard]] bool empty() const { return begin_ == nullptr; }
  // A piece that no copy reads any more; null: `error` has the reason. Asks the GPU again and again
  // until the copy has passed, because a call that waits might never return once the GPU has
  // failed.
  std::byte* next(cudaError_t& error);
  cudaError_t passed(cudaStream_t stream);  // behind the copies from the last next()
  cudaError_t end();                        // once no stream uses it any more

 private:
  std::byte* begin_ = nullptr;
  int64_t piece_bytes_ = 0;
  std::vector<cudaEvent_t> passed_;  // null: not used yet
  size_t next_ = 0;
};

}  // namespace tandem::device::cuda
