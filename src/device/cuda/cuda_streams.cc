#include "device/cuda/cuda_streams.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "device/op_queries.h"

namespace tandem::device::cuda {
namespace {

constexpr int kNumberBits = 48;  // low bits of an EventId: the event's number in its stream
constexpr std::string_view kTakingPinned = "taking pinned memory";
constexpr std::string_view kRunning = "running what was launched";
// The pump asks again and again this often before it sleeps between two questions.
constexpr int kEagerQuestions = 200;
constexpr auto kPause = std::chrono::microseconds(20);

}  // namespace

CudaStreams::CudaStreams(int device, GpuHealth& health, std::byte* own, Libraries libraries,
                         observe::Timeline* timeline)
    : device_(device),
      health_(health),
      timeline_(timeline),
      timed_algorithms_(libraries.timed_algorithms),
      graphs_(libraries.graphs && timeline == nullptr) {
  own = rooms_.uploads.place(own, kUploadBytes);
  own = rooms_.samples.place(own, kSampleRoomBytes);
  note(rooms_.upload_pieces.take(kUploadPieces, kUploadBytes), kTakingPinned);
  if (libraries.attention) {
    rooms_.plans.place(own, libraries.prefill);
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
    Line& own = *lines_[static_cast<size_t>(i)];
    well = launch_held(own) && note(cudaStreamSynchronize(own.stream.get()), kDoing);
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

bool CudaStreams::forget_graphs() {
  bool well = use_device();
  for (int32_t i = 0; i < line_count_.load() && well; ++i) {
    well = note(lines_[static_cast<size_t>(i)]->stream.forget_graphs(), "forgetting graphs");
  }
  return well;
}

void CudaStreams::note_products() {
  if (forget_graphs()) {
    rooms_.library->note_products();
  }
}

Result<std::vector<TunedChoice>> CudaStreams::tune(Nanos limit) {
  std::vector<TunedChoice> choices;
  bool well = forget_graphs();
  if (well && line_count_.load() > 0) {
    well = note(lines_[0]->stream.tune(limit, choices), "timing the algorithms of products");
  }
  if (!well) {
    return *health_.failure();
  }
  return choices;
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
  auto line = std::make_unique<Line>(rooms_, graphs_);
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
  if (!use_device() || own.stream.hold_back(op) || !launch_held(own) || own.stream.hold_back(op)) {
    return;
  }
  const cudaError_t error =
      own.trace == nullptr ? own.stream.launch(op)
                           : own.trace->around(label_of(op), [&] { return own.stream.launch(op); });
  if (error != cudaSuccess) {
    note(error, fmt::format("launching {}", label_of(op).name));
  }
}

bool CudaStreams::launch_held(Line& own) {
  return note(own.stream.launch_held(), "launching a run of operations");
}

EventId CudaStreams::record(StreamId stream, bool notifies) {
  Line& own = line(stream);
  const int64_t number = ++own.recorded;
  if (use_device() && launch_held(own) &&
      note(record_on(own, number, notifies), "recording an event")) {
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
  if (!use_device() || !launch_held(line(stream))) {
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
