#include "device/cuda/cuda_stream.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <variant>

#include "base/check.h"
#include "device/cuda/cuda_ops.h"
#include "device/cuda/kernels/kv_move.h"

namespace tandem::device::cuda {
namespace {

// Copies of rows on their way to the host go before blocks that change tier.
cudaError_t priority_of(StreamKind kind, int& priority) {
  int low = 0;
  int high = 0;
  const cudaError_t error = cudaDeviceGetStreamPriorityRange(&low, &high);
  priority = kind == StreamKind::kSwap ? low : high;
  return error;
}

cudaError_t copy(cudaStream_t stream, const CopyOp& op) {
  return op.bytes > 0 ? cudaMemcpyAsync(op.target, op.source, static_cast<size_t>(op.bytes),
                                        cudaMemcpyDefault, stream)
                      : cudaSuccess;
}

// Rows of a checkpoint that lie before padded row `i`.
int64_t rows_before(const kernels::PaddedDim& dim, int64_t i) {
  return i / dim.padded_group * dim.group + std::min(i % dim.padded_group, dim.group);
}

}  // namespace

cudaError_t CudaStream::make(StreamKind kind) {
  int priority = 0;
  const cudaError_t error = priority_of(kind, priority);
  return error == cudaSuccess
             ? cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority)
             : error;
}

class CudaStream::Products {
 public:
  explicit Products(const CudaStream& stream) : data_(stream.rooms_.products.data()) {
    if (!stream.holds_products_) {
      hold_.emplace(stream.rooms_.products, stream.stream_);
    }
  }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] cudaError_t error() const { return hold_ ? hold_->error() : cudaSuccess; }

 private:
  std::byte* const data_;
  std::optional<SharedRoom::Hold> hold_;
};

cudaError_t CudaStream::end() {
  cudaError_t error = cudaStreamSynchronize(stream_);
  if (error == cudaSuccess && graphs_ != nullptr) {
    error = graphs_->clear();
  }
  return error == cudaSuccess ? cudaStreamDestroy(stream_) : error;
}

cudaError_t CudaStream::forget_graphs() {
  return graphs_ == nullptr ? cudaSuccess : graphs_->clear();
}

cudaError_t CudaStream::tune(Nanos limit, std::vector<TunedChoice>& choices) {
  constexpr auto kPatience = std::chrono::seconds(10);
  const Products room(*this);
  GpuTimer timer;
  cudaError_t error = room.error();
  if (error == cudaSuccess) {
    error = timer.open(stream_, kPatience);
  }
  if (error == cudaSuccess) {
    error = rooms_.library->tune(stream_, timer, room.data(), limit, choices);
  }
  return error == cudaSuccess ? timer.close() : error;
}

bool CudaStream::hold_back(const Op& op) { return graphs_ != nullptr && graphs_->add(op); }

cudaError_t CudaStream::launch_held() {
  if (graphs_ == nullptr || graphs_->empty()) {
    return cudaSuccess;
  }
  const Products room(*this);
  if (room.error() != cudaSuccess) {
    return room.error();
  }
  holds_products_ = true;
  const cudaError_t error = graphs_->launch(stream_, [this](const Op& op) { return launch(op); });
  holds_products_ = false;
  return error;
}

cudaError_t CudaStream::launch(const Op& op) {
  return std::visit(
      [this]<class AnyOp>(const AnyOp& any) {
        if constexpr (std::is_same_v<AnyOp, CopyOp>) {
          return copy(stream_, any);
        } else if constexpr (std::is_same_v<AnyOp, SampleOp>) {
          return run(stream_, any, rooms_.samples);
        } else if constexpr (std::is_same_v<AnyOp, RopeWriteOp>) {
          RopeWriteOp own = any;
          own.layout = gpu_layout(any.layout);
          return run(stream_, Op(own));
        } else if constexpr (std::is_same_v<AnyOp, UploadOp>) {
          return upload(any);
        } else if constexpr (std::is_same_v<AnyOp, GemmOp> || std::is_same_v<AnyOp, GateUpOp>) {
          return multiply(any);
        } else if constexpr (std::is_same_v<AnyOp, AttentionPlanOp>) {
          return plan(any);
        } else if constexpr (std::is_same_v<AnyOp, AttentionOp>) {
          return attend(any);
        } else {
          return run(stream_, any);
        }
      },
      op);
}

cudaError_t CudaStream::multiply(const GemmOp& op) {
  if (rooms_.library == nullptr) {
    return run(stream_, op);
  }
  const Products room(*this);
  if (room.error() != cudaSuccess) {
    return room.error();
  }
  const std::optional<cudaError_t> error = rooms_.library->launch(stream_, op, room.data());
  return error.has_value() ? *error : run(stream_, op);
}

// Gate's and up's sums go to the room, in pieces of rows that fit it; SiLU is a kernel of
// its own behind them.
cudaError_t CudaStream::multiply(const GateUpOp& op) {
  const int64_t row_bytes = op.w.n * static_cast<int64_t>(sizeof(float));
  const int64_t room_bytes = rooms_.products.bytes() - LibraryProducts::kWorkspaceBytes;
  if (rooms_.library == nullptr || op.rows <= 0 || row_bytes > room_bytes) {
    return run(stream_, op);
  }
  const Products room(*this);
  if (room.error() != cudaSuccess) {
    return room.error();
  }
  auto* sums = reinterpret_cast<float*>(room.data() + LibraryProducts::kWorkspaceBytes);
  const auto piece_rows =
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(room_bytes / row_bytes)));
  const auto* x = static_cast<const std::byte*>(op.x);
  for (int64_t begin = 0; begin < op.rows; begin += piece_rows) {
    const int64_t count = std::min(piece_rows, op.rows - begin);
    const std::optional<cudaError_t> error =
        rooms_.library->launch(stream_,
                               GemmOp{.x = x + begin * op.x_stride * element_bytes(op.x_type),
                                      .x_type = op.x_type,
                                      .x_stride = op.x_stride,
                                      .rows = count,
                                      .w = op.w,
                                      .y = sums,
                                      .y_stride = op.w.n},
                               room.data());
    if (!error.has_value()) {
      return run(stream_, op);  // also the rows before, which are stored again
    }
    if (*error != cudaSuccess) {
      return *error;
    }
    if (const cudaError_t rest = run(stream_, op, {.sums = sums, .begin = begin, .count = count});
        rest != cudaSuccess) {
      return rest;
    }
  }
  return cudaSuccess;
}

// In pieces, each copied to pinned memory, from there to the room and rounded into its place: a
// copy from the checkpoint's own memory would take the driver several times the time. This waits
// for earlier pieces, so it is for loading alone.
cudaError_t CudaStream::upload(const UploadOp& op) {
  CHECK(op.source_quantization == Quantization::kNone, "an upload of {} to a device without them",
        quantization_name(op.source_quantization));
  const int64_t row_bytes = op.k.logical * element_bytes(op.source_type);
  CHECK(row_bytes <= rooms_.uploads.bytes(), "an upload of rows of {} bytes", row_bytes);
  const int64_t piece = rooms_.uploads.bytes() / std::max<int64_t>(row_bytes, 1);
  const auto* source = static_cast<const std::byte*>(op.source);
  SharedRoom::Hold room(rooms_.uploads, stream_);
  cudaError_t error = room.error();
  for (int64_t begin = 0; begin < op.n.padded() && error == cudaSuccess; begin += piece) {
    const int64_t count = std::min(piece, op.n.padded() - begin);
    const int64_t first = rows_before(op.n, begin);
    const int64_t rows = rows_before(op.n, begin + count) - first;
    error = copy_up(room.data(), source + first * row_bytes, rows * row_bytes);
    if (error == cudaSuccess) {
      error = run(stream_, op,
                  {.source = room.data(), .source_row = first, .begin = begin, .count = count});
    }
  }
  return error;
}

cudaError_t CudaStream::copy_up(std::byte* target, const std::byte* source, int64_t bytes) {
  cudaError_t error = cudaSuccess;
  std::byte* pinned = rooms_.upload_pieces.next(error);
  if (pinned == nullptr) {
    return error;
  }
  std::memcpy(pinned, source, static_cast<size_t>(bytes));
  error = copy(stream_, {target, pinned, bytes});
  return error == cudaSuccess ? rooms_.upload_pieces.passed(stream_) : error;
}

cudaError_t CudaStream::plan(const AttentionPlanOp& op) {
  CHECK(op.batch.plan >= 0 && op.batch.plan < kAttentionPlans, "plan {} of attention",
        op.batch.plan);
  plans_.at(static_cast<size_t>(op.batch.plan)) = op.batch;
  return planned_.plan(rooms_.plans, stream_, op.batch);
}

cudaError_t CudaStream::attend(const AttentionOp& op) {
  const AttentionBatch& batch = op.batch;
  if (batch.shape.slices <= 0) {
    return cudaSuccess;
  }
  const AttentionBatch& planned = plans_.at(static_cast<size_t>(batch.plan));
  CHECK(planned.slices == batch.slices && planned.shape.slices == batch.shape.slices &&
            planned.window == batch.window,
        "attention of {} slices, window {}, by the plan of {}, window {}", batch.shape.slices,
        batch.window, planned.shape.slices, planned.window);
  if (planned_.has(op)) {
    return planned_.run(rooms_.plans, stream_, op);
  }
  const int64_t needed = attention_pair_bytes(batch.layout, batch.shape.max_context, batch.window);
  const int64_t given = batch.workspace_floats * static_cast<int64_t>(sizeof(float));
  CHECK(needed <= given, "attention over {} tokens needs a workspace of {} bytes, it has {}",
        batch.shape.max_context, needed, given);
  return run(stream_, op);
}

}  // namespace tandem::device::cuda
