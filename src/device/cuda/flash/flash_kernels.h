// FlashInfer's paged attention behind plain arguments, by kernels of two kinds: for every GPU,
// written for Ampere (FA2), and for Hopper (FA3). Three sources define each:
// the .cu files of this folder over FlashInfer's headers, no_*_kernels.cc where a build has not got
// them, and tests/cuda_on_host/flash_kernels.cc, which plays them.
//
// Sequences of a call lie one behind the other: sequence i has the rows row_starts[i] ..
// row_starts[i + 1] - 1 of q and out, and its context lies in the pages page_starts[i] ..
// page_starts[i + 1] - 1, the last of them filled with last_page_tokens[i]. Its rows are the last
// tokens of its context; each attends to itself and to the tokens before it.
//
// No function takes memory of the GPU, or waits for it. Threads: one at a time for each room.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/element_type.h"

namespace tandem::device::cuda::flash {

// The most tiles of queries whose contexts are divided.
inline constexpr int64_t kMaxTiles = 384;
inline constexpr int64_t kTileRows = 128;

// Does this build have kernels for heads of this padded size?
bool serves(int32_t head_dim);

struct Shape {
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;  // padded
  int32_t page_tokens = 0;
  int32_t window = 0;  // as AttentionBatch
};

struct Sequences {
  int32_t count = 0;
  int32_t rows = 0;
  const int32_t* row_starts = nullptr;        // [count + 1], the first is 0
  const int32_t* page_starts = nullptr;       // [count + 1]
  const int32_t* last_page_tokens = nullptr;  // [count]
};

// Bytes for the partial sums of contexts that are divided, values and weights of a tile's rows.
constexpr int64_t partial_bytes(int32_t head_dim, int32_t heads) {
  constexpr int64_t kAlignment = 256;
  const int64_t rows = kMaxTiles * kTileRows + heads;
  const int64_t bytes = rows * (head_dim + 1) * int64_t{sizeof(float)} + kAlignment;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Where a plan and its partial sums lie; all parts 16-byte aligned.
struct Room {
  std::byte* plan = nullptr;         // device memory, plan_bytes
  std::byte* pinned_plan = nullptr;  // host memory of the same size, free until the copy has passed
  int64_t plan_bytes = 0;
  std::byte* partials = nullptr;  // device memory, partial_bytes
  int64_t partial_bytes = 0;
};

// What run() must know of a plan.
using Plan = std::array<int64_t, 15>;

// Divides the work of `sequences` (in host memory) and copies the plan to the room on the stream.
// cudaErrorInvalidValue: it does not fit the room, or there is no kernel for it; the room may be
// planned again.
cudaError_t plan(cudaStream_t stream, const Shape& shape, const Sequences& sequences,
                 const Room& room, Plan& plan);

struct Operands {
  const BFloat16* q = nullptr;     // [rows, heads, head_dim], not scaled
  const BFloat16* keys = nullptr;  // of page 0; [kv_heads][page_tokens][head_dim]
  const BFloat16* values = nullptr;
  int64_t page_stride = 0;         // elements between two pages, of keys and of values
  const int32_t* pages = nullptr;  // device memory, as page_starts counts them
  float scale = 0.0F;
  BFloat16* out = nullptr;  // [rows, heads, head_dim]
};
// q, keys, values, page_stride and out are multiples of 16 bytes.

// As planned for the same shape and sequences, here in device memory.
cudaError_t run(cudaStream_t stream, const Shape& shape, const Sequences& sequences,
                const Room& room, const Plan& plan, const Operands& operands);

// The same by kernels for GPUs of compute capability 9.0, which alone can run them. They serve
// chunks of prompts: a tile is 128 rows (192 of heads of 64) of one head, however few there are,
// and no context is divided, so partial sums are not used. Shape::window must be 0.
namespace hopper {

bool serves(int32_t head_dim);
cudaError_t plan(cudaStream_t stream, const Shape& shape, const Sequences& sequences,
                 const Room& room, Plan& plan);
cudaError_t run(cudaStream_t stream, const Shape& shape, const Sequences& sequences,
                const Room& room, const Plan& plan, const Operands& operands);

}  // namespace hopper

// The two functions of one kind.
struct Kernels {
  decltype(&plan) plan_call;
  decltype(&run) run_call;
};
inline constexpr Kernels kAmpere{plan, run};
inline constexpr Kernels kHopper{hopper::plan, hopper::run};

}  // namespace tandem::device::cuda::flash
