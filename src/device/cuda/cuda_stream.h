// One stream of a GPU: puts ops on it, by the libraries that serve them or by the kernels of
// kernels/.
//
// Threads: the stream's issuing thread.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device/cuda/library_products.h"
#include "device/cuda/op_graphs.h"
#include "device/cuda/pinned_ring.h"
#include "device/cuda/planned_attention.h"
#include "device/cuda/shared_room.h"
#include "device/device.h"

namespace tandem::device::cuda {

// Memory and the library that the streams of a GPU share.
struct StreamRooms {
  SharedRoom uploads;        // rows of a checkpoint on their way
  PinnedRing upload_pieces;  // used by the holder of `uploads`
  SharedRoom samples;        // for the fast kernels of SampleOp
  SharedRoom products;       // the library's workspace, and sums that no op has a place for
  PlanRoom plans;            // empty: the plain kernels attend
  std::unique_ptr<LibraryProducts>
      library;  // used by the holder of `products`; null: plain kernels
};

// What computes in the plain kernels' stead.
struct Libraries {
  std::unique_ptr<LibraryProducts> products;  // null: plain kernels
  bool timed_algorithms = false;              // algorithms of products are chosen by time
  bool attention = false;                     // FlashInfer's kernels
  PrefillChoice prefill;                      // which of them for prompts
  bool graphs = false;                        // runs of ops as CUDA graphs
};

// Used by CudaStreams. Calls return what CUDA says.
class CudaStream {
 public:
  // With `graphs`, runs of ops can be held back for graphs (op_graphs.h).
  explicit CudaStream(StreamRooms& rooms, bool graphs = false) : rooms_(rooms) {
    if (graphs) {
      graphs_ = std::make_unique<OpGraphs>();
    }
  }
  ~CudaStream() = default;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  cudaError_t make(StreamKind kind);
  bool hold_back(const Op& op);  // false: it cannot be part of the run that is held back
  cudaError_t launch_held();
  // Behind launch_held().
  cudaError_t launch(const Op& op);
  // Chooses algorithms of products by time (device/tuning.h). There must be a library, and nothing
  // may run on any stream.
  cudaError_t tune(Nanos limit, std::vector<TunedChoice>& choices);
  // Graphs hold the algorithms with which they were made. None may run.
  cudaError_t forget_graphs();
  cudaError_t end();  // once nothing is launched any more
  [[nodiscard]] cudaStream_t get() const { return stream_; }

 private:
  // The room of products, of the stream while this lives; it is that already while a run is
  // launched.
  class Products;

  cudaError_t multiply(const GemmOp& op);
  cudaError_t multiply(const GateUpOp& op);
  cudaError_t upload(const UploadOp& op);
  cudaError_t copy_up(std::byte* target, const std::byte* source, int64_t bytes);
  cudaError_t plan(const AttentionPlanOp& op);
  cudaError_t attend(const AttentionOp& op);

  StreamRooms& rooms_;
  cudaStream_t stream_ = nullptr;
  std::array<AttentionBatch, kAttentionPlans> plans_;
  PlannedAttention planned_;
  std::unique_ptr<OpGraphs> graphs_;  // null: ops are launched one by one
  bool holds_products_ = false;
};

}  // namespace tandem::device::cuda
