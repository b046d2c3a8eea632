#include "device/cuda/cuda_stream.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>
#include <variant>

#include "base/check.h"
#include "device/cuda/cuda_ops.h"
#include "device/cuda/kernels/kv_move.h"
#include "device/op_queries.h"

namespace tandem::device::cuda {
namespace {

constexpr int kNumberBits = 48;  // low bits of an EventId: the event's number in its stream
constexpr std::string_view kTakingPinned = "taking pinned memory";
constexpr std::string_view kRunning = "running what was launched";
// The pump asks again and again this often before it sleeps between two questions.
constexpr int kEagerQuestions = 200;
constexpr auto kPause = std::chrono::microseconds(20);

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

cudaError_t CudaStream::end() {
  const cudaError_t error = cudaStreamSynchronize(stream_);
  return error == cudaSuccess ? cudaStreamDestroy(stream_) : error;
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
  const SharedRoom::Hold room(rooms_.products, stream_);
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
  const SharedRoom::Hold room(rooms_.products, stream_);
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

CudaStreams::CudaStreams(int device, GpuHealth& health, std::byte* own, Libraries libraries,
                         observe::Timeline* timeline)
    : device_(device), health_(health), timeline_(timeline) {
  own = rooms_.uploads.place(own, kUploadBytes);
  own = rooms_.samples.place(own, kSampleRoomBytes);
  note(rooms_.upload_pieces.take(kUploadPieces, kUploadBytes), kTakingPinned);
  if (libraries.attention) {
    rooms_.plans.place(own);
    own += PlanRoom::kDeviceBytes;
    note(rooms_.plans.on_the_way().take(PlanRoom::kOnTheWay, PlanRoom::kPinnedBytes),
         kTakingPinned);
  }
  if (libraries.products != nullptr) {
    rooms_.products.place(own, kProductBytes);
    rooms_.library = std::move(libraries.products);
  }
  listeners_.emplace_back();
  pump_ = std::thread([this] { pump(); });
}

CudaStreams::~CudaStreams() {
  constexpr std::string_view kDoing = "ending its streams";
  bool well = use_device();
  for (int32_t i = 0; i < line_count_.load() && well; ++i) {
    well = note(cudaStreamSynchronize(lines_[static_cast<size_t>(i)]->stream.get()), kDoing);
  }
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  work_.notify_one();
  pump_.join();  // it first completes what is pending
  for (size_t i = 0; i < spare_events_.size() && well; ++i) {
    well = note(cudaEventDestroy(spare_events_[i]), kDoing);
  }
  for (int32_t i = 0; i < line_count_.load() && well; ++i) {
    Line& own = *lines_[static_cast<size_t>(i)];
    well = (own.trace == nullptr || note(own.trace->close(), kDoing)) &&
           note(own.stream.end(), kDoing);
  }
  if (well) {
    note(rooms_.uploads.end(), kDoing);
    note(rooms_.samples.end(), kDoing);
    note(rooms_.products.end(), kDoing);
    note(rooms_.plans.on_the_way().end(), kDoing);
    note(rooms_.upload_pieces.end(), kDoing);
  } else if (rooms_.library != nullptr) {
    rooms_.library->forsake();
  }
}

// Not inside mutex_. The pump must learn about the failure, and may just be about to wait.
bool CudaStreams::note(cudaError_t error, std::string_view doing) const {
  if (health_.ok(error, doing)) {
    return true;
  }
  { const std::lock_guard lock(mutex_); }
  work_.notify_one();
  return false;
}

// The current GPU is a property of a thread, and others may have set it; this costs nothing if it
// is right already. False: the GPU has failed, now or before.
bool CudaStreams::use_device() const {
  return !health_.failed() && note(cudaSetDevice(device_), "choosing the GPU of a thread");
}

CudaStreams::Line& CudaStreams::line(StreamId stream) const {
  const auto index = static_cast<int32_t>(stream);
  CHECK(index >= 0 && index < line_count_.load(std::memory_order_acquire), "stream {}", index);
  return *lines_[static_cast<size_t>(index)];
}

int64_t CudaStreams::number_of(EventId event) {
  return static_cast<int64_t>(event) & ((int64_t{1} << kNumberBits) - 1);
}

StreamId CudaStreams::stream_of(EventId event) {
  return static_cast<StreamId>(static_cast<int64_t>(event) >> kNumberBits);
}

StreamId CudaStreams::add(StreamKind kind) {
  auto line = std::make_unique<Line>(rooms_);
  if (use_device() && note(line->stream.make(kind), "making a stream") && timeline_ != nullptr) {
    note(open_trace(*line, kind), "making a stream");
  }
  const std::lock_guard lock(mutex_);
  const int32_t index = line_count_.load();
  CHECK(index < kMaxStreams, "more than {} streams", kMaxStreams);
  lines_[static_cast<size_t>(index)] = std::move(line);
  line_count_.store(index + 1, std::memory_order_release);
  return static_cast<StreamId>(index);
}

cudaError_t CudaStreams::open_trace(Line& own, StreamKind kind) {
  observe::Track& track = timeline_->add_track(
      "accelerator", fmt::format("{}: {}", line_count_.load(), stream_kind_name(kind)));
  own.trace = std::make_unique<StreamTrace>(track, clock_);
  return own.trace->open(own.stream.get());
}

void CudaStreams::launch(StreamId stream, const Op& op) {
  Line& own = line(stream);
  if (!use_device()) {
    return;
  }
  const cudaError_t error =
      own.trace == nullptr ? own.stream.launch(op)
                           : own.trace->around(label_of(op), [&] { return own.stream.launch(op); });
  if (error != cudaSuccess) {
    note(error, fmt::format("launching {}", label_of(op).name));
  }
}

EventId CudaStreams::record(StreamId stream, bool notifies) {
  Line& own = line(stream);
  const int64_t number = ++own.recorded;
  if (use_device() && note(record_on(own, number, notifies), "recording an event")) {
    work_.notify_one();
  }
  return static_cast<EventId>((static_cast<int64_t>(stream) << kNumberBits) | number);
}

cudaError_t CudaStreams::record_on(Line& own, int64_t number, bool notifies) {
  const std::lock_guard lock(mutex_);
  const std::function<void()>& listener = listeners_.back();
  cudaEvent_t event = nullptr;
  if (!spare_events_.empty()) {
    event = spare_events_.back();
    spare_events_.pop_back();
  } else if (const cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
             error != cudaSuccess) {
    return error;
  }
  const cudaError_t error = cudaEventRecord(event, own.stream.get());
  if (error == cudaSuccess) {
    own.pending.push_back({number, event, notifies && listener ? &listener : nullptr,
                           own.trace == nullptr ? 0 : own.trace->marks()});
    ++pending_;
  }
  return error;
}

void CudaStreams::wait(StreamId stream, EventId event) {
  const Line& other = line(stream_of(event));
  if (!use_device()) {
    return;
  }
  cudaError_t error = cudaSuccess;
  {
    const std::lock_guard lock(mutex_);  // the pump does not take the event away meanwhile
    if (const Pending* pending = find(other, event)) {
      error = cudaStreamWaitEvent(line(stream).stream.get(), pending->event, 0);
    }
  }
  note(error, "ordering streams");
}

// The pump may not have asked for it yet although what depends on it is known to be done.
bool CudaStreams::query(EventId event) const {
  const Line& own = line(stream_of(event));
  if (own.completed.load(std::memory_order_acquire) >= number_of(event) || health_.failed()) {
    return true;
  }
  cudaError_t state = cudaSuccess;
  {
    const std::lock_guard lock(mutex_);
    if (const Pending* pending = find(own, event)) {
      state = cudaEventQuery(pending->event);
    }
  }
  if (state == cudaErrorNotReady) {
    return false;
  }
  note(state, kRunning);
  return true;
}

// mutex_ held; null: it is complete.
const CudaStreams::Pending* CudaStreams::find(const Line& line, EventId event) {
  const auto found =
      std::find_if(line.pending.begin(), line.pending.end(),
                   [&](const Pending& each) { return each.number == number_of(event); });
  return found == line.pending.end() ? nullptr : &*found;
}

void CudaStreams::synchronize(EventId event) {
  const Line& own = line(stream_of(event));
  note(cudaSuccess, kRunning);  // wakes the pump if a failure was noted elsewhere
  std::unique_lock lock(mutex_);
  settled_.wait(lock, [&] { return given_up_ || own.settled.load() >= number_of(event); });
}

void CudaStreams::set_listener(std::function<void()> on_event) {
  const std::lock_guard lock(mutex_);
  listeners_.push_back(std::move(on_event));
}

void CudaStreams::pump() {
  static_cast<void>(use_device());
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  int questions = 0;
  for (;;) {
    bool lost = false;
    {
      std::unique_lock lock(mutex_);
      if (pending_ == 0) {
        questions = 0;
      }
      // Another thread may have recorded an event while the failure was noted.
      const auto is_lost = [this] { return health_.failed() && (!given_up_ || pending_ > 0); };
      work_.wait(lock, [&] { return pending_ > 0 || ending_ || is_lost(); });
      lost = is_lost();
      if (pending_ == 0 && !lost) {
        return;
      }
    }
    if (lost) {
      give_up();
    } else if (complete_some()) {
      questions = 0;
    } else if (++questions < kEagerQuestions) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
}

// The GPU has failed: nothing completes any more, and no thread may wait for it.
void CudaStreams::give_up() {
  const std::function<void()>* listener = nullptr;
  {
    const std::lock_guard lock(mutex_);
    for (int32_t i = 0; i < line_count_.load(); ++i) {
      lines_[static_cast<size_t>(i)]->pending.clear();
    }
    pending_ = 0;
    listener = given_up_ ? nullptr : &listeners_.back();
  }
  if (listener != nullptr && *listener) {
    (*listener)();
  }
  {
    const std::lock_guard lock(mutex_);
    given_up_ = true;
  }
  settled_.notify_all();
}

// Asks for the oldest events of each stream. False: none was complete, and the GPU works.
bool CudaStreams::complete_some() {
  bool some = false;
  const int32_t count = line_count_.load(std::memory_order_acquire);
  for (int32_t i = 0; i < count; ++i) {
    Line& own = *lines_[static_cast<size_t>(i)];
    for (;;) {
      Pending oldest;
      {
        const std::lock_guard lock(mutex_);
        if (own.pending.empty()) {
          break;
        }
        oldest = own.pending.front();
      }
      const cudaError_t state = cudaEventQuery(oldest.event);
      if (state == cudaErrorNotReady) {
        break;
      }
      if (!note(state, kRunning)) {
        return true;
      }
      own.completed.store(oldest.number, std::memory_order_release);
      if (own.trace != nullptr && !note(own.trace->show(oldest.marks), kRunning)) {
        return true;
      }
      if (oldest.listener != nullptr) {
        (*oldest.listener)();
      }
      {
        const std::lock_guard lock(mutex_);
        own.pending.pop_front();
        spare_events_.push_back(oldest.event);
        --pending_;
        own.settled.store(oldest.number);
      }
      settled_.notify_all();
      some = true;
    }
  }
  return some;
}

}  // namespace tandem::device::cuda
