#include "device/cuda/cuda_stream.h"

#include <sys/prctl.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "base/check.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_ops.h"

namespace tandem::device::cuda {
namespace {

constexpr int kNumberBits = 48;  // low bits of an EventId: the event's number in its stream
constexpr int64_t kUploadRoomBytes = int64_t{16} << 20;
// The pump asks again and again this often before it sleeps between two questions.
constexpr int kEagerQuestions = 200;
constexpr auto kPause = std::chrono::microseconds(20);

// The current GPU is a property of a thread, and others may have set it; this costs nothing where
// it is right already.
void use(int device) { must(cudaSetDevice(device), "choosing the GPU of a thread"); }

// Copies of rows on their way to the host go before blocks that change tier.
int priority_of(StreamKind kind) {
  int least = 0;
  int greatest = 0;
  must(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities of streams");
  return kind == StreamKind::kSwap ? least : greatest;
}

void copy(cudaStream_t stream, const CopyOp& op) {
  if (op.bytes > 0) {
    must(cudaMemcpyAsync(op.target, op.source, static_cast<size_t>(op.bytes), cudaMemcpyDefault,
                         stream),
         "copying");
  }
}

// Rows of a checkpoint that lie before padded row `i`.
int64_t rows_before(const kernels::PaddedDim& dim, int64_t i) {
  return i / dim.padded_group * dim.group + std::min(i % dim.padded_group, dim.group);
}

}  // namespace

CudaStream::CudaStream(int device, StreamKind kind) {
  use(device);
  must(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority_of(kind)),
       "making a stream");
}

CudaStream::~CudaStream() {
  must(cudaStreamSynchronize(stream_), "ending a stream");
  must(cudaFree(upload_room_), "freeing memory");
  must(cudaStreamDestroy(stream_), "ending a stream");
}

void CudaStream::launch(const Op& op) {
  std::visit(
      [this]<class AnyOp>(const AnyOp& any) {
        if constexpr (std::is_same_v<AnyOp, CopyOp>) {
          copy(stream_, any);
        } else if constexpr (std::is_same_v<AnyOp, KvMoveOp>) {
          copy(stream_, any.copy);  // both tiers have the host's arrangement
        } else if constexpr (std::is_same_v<AnyOp, UploadOp>) {
          upload(any);
        } else if constexpr (std::is_same_v<AnyOp, AttentionPlanOp>) {
          plan(any);
        } else if constexpr (std::is_same_v<AnyOp, AttentionOp>) {
          attend(any);
        } else {
          run(stream_, any);
        }
      },
      op);
}

// In pieces, each copied to the room and rounded into its place from there. From pageable memory
// such a copy returns once the driver has read it, so this is for loading alone.
void CudaStream::upload(const UploadOp& op) {
  CHECK(op.source_quantization == Quantization::kNone, "an upload of {} to a device without them",
        quantization_name(op.source_quantization));
  if (upload_room_ == nullptr) {
    must(cudaMalloc(&upload_room_, static_cast<size_t>(kUploadRoomBytes)),
         "taking memory for uploads");
  }
  const int64_t row_bytes = op.k.logical * element_bytes(op.source_type);
  CHECK(row_bytes <= kUploadRoomBytes, "an upload of rows of {} bytes", row_bytes);
  const int64_t piece = kUploadRoomBytes / std::max<int64_t>(row_bytes, 1);
  const auto* source = static_cast<const std::byte*>(op.source);
  for (int64_t begin = 0; begin < op.n.padded(); begin += piece) {
    const int64_t count = std::min(piece, op.n.padded() - begin);
    const int64_t first = rows_before(op.n, begin);
    const int64_t rows = rows_before(op.n, begin + count) - first;
    copy(stream_, {upload_room_, source + first * row_bytes, rows * row_bytes});
    run(stream_, op, {.source = upload_room_, .source_row = first, .begin = begin, .count = count});
  }
}

void CudaStream::plan(const AttentionPlanOp& op) {
  CHECK(op.batch.plan >= 0 && op.batch.plan < kAttentionPlans, "plan {} of attention",
        op.batch.plan);
  plans_.at(static_cast<size_t>(op.batch.plan)) = op.batch;
}

void CudaStream::attend(const AttentionOp& op) {
  const AttentionBatch& batch = op.batch;
  if (batch.shape.slices <= 0) {
    return;
  }
  const AttentionBatch& planned = plans_.at(static_cast<size_t>(batch.plan));
  CHECK(planned.slices == batch.slices && planned.shape.slices == batch.shape.slices &&
            planned.window == batch.window,
        "attention of {} slices, window {}, by the plan of {}, window {}", batch.shape.slices,
        batch.window, planned.shape.slices, planned.window);
  const int64_t needed = attention_pair_bytes(batch.layout, batch.shape.max_context, batch.window);
  const int64_t given = batch.workspace_floats * static_cast<int64_t>(sizeof(float));
  CHECK(needed <= given, "attention over {} tokens needs a workspace of {} bytes, it has {}",
        batch.shape.max_context, needed, given);
  run(stream_, op);
}

CudaStreams::CudaStreams(int device) : device_(device) {
  listeners_.emplace_back();
  pump_ = std::thread([this] { pump(); });
}

CudaStreams::~CudaStreams() {
  use(device_);
  for (int32_t i = 0; i < line_count_.load(); ++i) {
    must(cudaStreamSynchronize(lines_[static_cast<size_t>(i)]->stream->get()), "ending a stream");
  }
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  work_.notify_one();
  pump_.join();  // it first completes what is pending
  for (const cudaEvent_t event : spare_events_) {
    must(cudaEventDestroy(event), "freeing an event");
  }
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
  auto line = std::make_unique<Line>();
  line->stream = std::make_unique<CudaStream>(device_, kind);
  const std::lock_guard lock(mutex_);
  const int32_t index = line_count_.load();
  CHECK(index < kMaxStreams, "more than {} streams", kMaxStreams);
  lines_[static_cast<size_t>(index)] = std::move(line);
  line_count_.store(index + 1, std::memory_order_release);
  return static_cast<StreamId>(index);
}

void CudaStreams::launch(StreamId stream, const Op& op) {
  use(device_);
  line(stream).stream->launch(op);
}

cudaEvent_t CudaStreams::take_event() {
  cudaEvent_t event = nullptr;
  if (spare_events_.empty()) {
    must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
  } else {
    event = spare_events_.back();
    spare_events_.pop_back();
  }
  return event;
}

EventId CudaStreams::record(StreamId stream, bool notifies) {
  use(device_);
  Line& own = line(stream);
  const int64_t number = ++own.recorded;
  {
    const std::lock_guard lock(mutex_);
    const std::function<void()>& listener = listeners_.back();
    const cudaEvent_t event = take_event();
    must(cudaEventRecord(event, own.stream->get()), "recording an event");
    own.pending.push_back({number, event, notifies && listener ? &listener : nullptr});
    ++pending_;
  }
  work_.notify_one();
  return static_cast<EventId>((static_cast<int64_t>(stream) << kNumberBits) | number);
}

void CudaStreams::wait(StreamId stream, EventId event) {
  use(device_);
  const Line& other = line(stream_of(event));
  const std::lock_guard lock(mutex_);  // the pump does not take the event away meanwhile
  if (const Pending* pending = find(other, event)) {
    must(cudaStreamWaitEvent(line(stream).stream->get(), pending->event, 0),
         "waiting for an event");
  }
}

// The pump may not have asked for it yet although what depends on it is known to be done.
bool CudaStreams::query(EventId event) const {
  const Line& own = line(stream_of(event));
  if (own.completed.load(std::memory_order_acquire) >= number_of(event)) {
    return true;
  }
  const std::lock_guard lock(mutex_);
  const Pending* pending = find(own, event);
  return pending == nullptr || cudaEventQuery(pending->event) == cudaSuccess;
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
  std::unique_lock lock(mutex_);
  settled_.wait(lock, [&] { return own.settled.load() >= number_of(event); });
}

void CudaStreams::set_listener(std::function<void()> on_event) {
  const std::lock_guard lock(mutex_);
  listeners_.push_back(std::move(on_event));
}

void CudaStreams::pump() {
  use(device_);
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  int questions = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (pending_ == 0) {
        questions = 0;
      }
      work_.wait(lock, [this] { return pending_ > 0 || ending_; });
      if (pending_ == 0) {
        return;
      }
    }
    if (complete_some()) {
      questions = 0;
    } else if (++questions < kEagerQuestions) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
}

// Asks for the oldest events of each stream. False: none was complete.
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
      must(state, "running what was launched");
      own.completed.store(oldest.number, std::memory_order_release);
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
