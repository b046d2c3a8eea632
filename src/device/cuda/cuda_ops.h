// The ops that compute, put on a stream of the GPU. cuda_ops.cc is the one file that a CUDA
// compiler must read; tests compile it for the host (launch.h). Returns what CUDA says of the
// launches. What arguments point to must stay as it is until the stream has passed. Threads: one
// for each stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "device/cuda/kernels/flash_input.h"
#include "device/cuda/shared_room.h"
#include "device/ops.h"

namespace tandem::device::cuda {

// "plain" runs only the plain kernels, which define the right results; "fast", the default of a
// GPU, the fast kernels of kernels/*.cuh if they take the op. Read once.
inline constexpr const char* kKernelsVariable = "TANDEM_CUDA_KERNELS";

// By the kernels that kernels/ names for the op (elements.h). Not for copies, moves, uploads and
// attention. KV lies as gpu_layout (kernels/kv_move.h) has it.
cudaError_t run(cudaStream_t stream, const Op& op);
// Runs in several passes if the workspace is too small for the records of all splits. The workspace
// holds those of one (row, head) at least: attention_pair_bytes of the step's longest context.
cudaError_t run(cudaStream_t stream, const AttentionOp& op);

// The room, of kSampleRoomBytes, is for the rows that the fast kernels work on at the same time.
inline constexpr int64_t kSampleRoomBytes = int64_t{8} << 20;
cudaError_t run(cudaStream_t stream, const SampleOp& op, SharedRoom& room);

// The rest of a GateUpOp, of rows whose products with gate and up are there: fp32, [row_count,
// w.n].
struct GateUpRows {
  const float* sums = nullptr;
  int64_t begin = 0;
  int64_t count = 0;
};
cudaError_t run(cudaStream_t stream, const GateUpOp& op, const GateUpRows& rows);

// Padded rows of an upload, whose source rows begin at row `source_row` in `source`, device memory.
struct UploadRows {
  const void* source = nullptr;
  int64_t source_row = 0;
  int64_t begin = 0;
  int64_t count = 0;
};
cudaError_t run(cudaStream_t stream, const UploadOp& op, const UploadRows& rows);

// What FlashInfer's kernels read.
cudaError_t pack_tables(cudaStream_t stream, const PackTables& tables);

// KV between the GPU's arrangement and the host's; either side is memory that the GPU reaches.
cudaError_t run(cudaStream_t stream, const KvMoveOp& op);

// Workspace of one (row, head) with such a context.
int64_t attention_pair_bytes(const kernels::KvLayout& layout, int64_t context_tokens,
                             int64_t window);

}  // namespace tandem::device::cuda
