// Plays FlashInfer for the host's CUDA: the same arguments, the same rounding of inputs and
// results, a loop for each query. Its plan holds the kind of kernels, sizes and sequences that it
// was made for, and run() checks that they have come to the device and are still the same. The
// kernels for Hopper compute the same; they refuse windows.
#include "device/cuda/flash/flash_kernels.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "cuda_runtime_api.h"
#include "flash_on_host.h"

namespace tandem::device::cuda::flash {
namespace {

struct Work {
  Shape shape;
  Sequences sequences;
  Operands operands;
};

// Attention of one row and head over the tokens begin .. end-1 of a sequence.
void attend(const Work& work, int32_t sequence, int64_t row, int32_t head, int64_t begin,
            int64_t end) {
  const Shape& shape = work.shape;
  const Operands& on = work.operands;
  const int64_t dims = shape.head_dim;
  const int64_t kv_head = head / (shape.heads / shape.kv_heads);
  const int32_t* pages = on.pages + work.sequences.page_starts[sequence];
  const BFloat16* q = on.q + (row * shape.heads + head) * dims;
  const auto place = [&](int64_t token) {
    return pages[token / shape.page_tokens] * on.page_stride +
           (kv_head * shape.page_tokens + token % shape.page_tokens) * dims;
  };
  std::vector<double> scores;
  for (int64_t token = begin; token < end; ++token) {
    double score = 0;
    for (int64_t dim = 0; dim < dims; ++dim) {
      score += static_cast<double>(bf16_to_f32(q[dim])) *
               static_cast<double>(bf16_to_f32(on.keys[place(token) + dim]));
    }
    scores.push_back(score * static_cast<double>(on.scale));
  }
  const double highest = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  std::vector<double> values(static_cast<size_t>(dims));
  for (int64_t token = begin; token < end; ++token) {
    const double weight = std::exp(scores[static_cast<size_t>(token - begin)] - highest);
    total += weight;
    for (int64_t dim = 0; dim < dims; ++dim) {
      values[static_cast<size_t>(dim)] +=
          weight * static_cast<double>(bf16_to_f32(on.values[place(token) + dim]));
    }
  }
  for (int64_t dim = 0; dim < dims; ++dim) {
    on.out[(row * shape.heads + head) * dims + dim] =
        f32_to_bf16(static_cast<float>(values[static_cast<size_t>(dim)] / total));
  }
}

void attend(const Work& work) {
  const Sequences& sequences = work.sequences;
  for (int32_t i = 0; i < sequences.count; ++i) {
    const int64_t pages = sequences.page_starts[i + 1] - sequences.page_starts[i];
    const int64_t context = (pages - 1) * work.shape.page_tokens + sequences.last_page_tokens[i];
    for (int64_t row = sequences.row_starts[i]; row < sequences.row_starts[i + 1]; ++row) {
      const int64_t end = context - (sequences.row_starts[i + 1] - 1 - row);
      const int64_t begin =
          work.shape.window == 0 ? 0 : std::max<int64_t>(end - work.shape.window, 0);
      for (int32_t head = 0; head < work.shape.heads; ++head) {
        attend(work, i, row, head, begin, end);
      }
    }
  }
}

enum Kind : int64_t { kForEveryGpu = 1, kForHopper = 2 };
std::atomic<int64_t> g_hopper_runs{0};

Plan plan_of(Kind kind, const Shape& shape, const Sequences& sequences) {
  return {kind, shape.heads, shape.head_dim, shape.window, sequences.count, sequences.rows};
}

cudaError_t plan_as(Kind kind, cudaStream_t stream, const Shape& shape, const Sequences& sequences,
                    const Room& room, Plan& plan) {
  const int64_t bytes = (int64_t{sequences.count} + 1) * int64_t{sizeof(int32_t)};
  if (bytes > room.plan_bytes || room.partial_bytes <= 0) {
    return cudaErrorInvalidValue;
  }
  plan = plan_of(kind, shape, sequences);
  std::copy_n(sequences.row_starts, sequences.count + 1,
              reinterpret_cast<int32_t*>(room.pinned_plan));
  return cudaMemcpyAsync(room.plan, room.pinned_plan, static_cast<size_t>(bytes), cudaMemcpyDefault,
                         stream);
}

cudaError_t run_as(Kind kind, cudaStream_t stream, const Work& work, const Room& room,
                   const Plan& plan) {
  if (plan != plan_of(kind, work.shape, work.sequences)) {
    return cudaErrorInvalidValue;
  }
  stream->push([work, planned = room.plan] {
    if (!std::equal(work.sequences.row_starts, work.sequences.row_starts + work.sequences.count + 1,
                    reinterpret_cast<const int32_t*>(planned))) {
      std::abort();  // the plan of another step
    }
    attend(work);
  });
  return cudaGetLastError();
}

}  // namespace

bool serves(int32_t head_dim) { return head_dim == 64 || head_dim == 128; }

cudaError_t plan(cudaStream_t stream, const Shape& shape, const Sequences& sequences,
                 const Room& room, Plan& plan) {
  return plan_as(kForEveryGpu, stream, shape, sequences, room, plan);
}

cudaError_t run(cudaStream_t stream, const Shape& shape, const Sequences& sequences,
                const Room& room, const Plan& plan, const Operands& operands) {
  return run_as(kForEveryGpu, stream, {shape, sequences, operands}, room, plan);
}

namespace hopper {

bool serves(int32_t head_dim) {
  const char* text = std::getenv(cuda_on_host::kHopperVariable);  // NOLINT(concurrency-mt-unsafe)
  return text != nullptr && *text != '\0' && flash::serves(head_dim);
}

cudaError_t plan(cudaStream_t stream, const Shape& shape, const Sequences& sequences,
                 const Room& room, Plan& plan) {
  return shape.window != 0 ? cudaErrorInvalidValue
                           : plan_as(kForHopper, stream, shape, sequences, room, plan);
}

cudaError_t run(cudaStream_t stream, const Shape& shape, const Sequences& sequences,
                const Room& room, const Plan& plan, const Operands& operands) {
  ++g_hopper_runs;
  return run_as(kForHopper, stream, {shape, sequences, operands}, room, plan);
}

}  // namespace hopper
}  // namespace tandem::device::cuda::flash

int64_t cuda_on_host::hopper_runs() { return tandem::device::cuda::flash::g_hopper_runs.load(); }
