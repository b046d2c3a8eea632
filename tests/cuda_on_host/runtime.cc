#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cuda_runtime_api.h"
#include "fault.h"

using cuda_on_host::fault;
using cuda_on_host::t_last_error;

namespace {

cuda_on_host::Machine g_machine;

std::mutex& g_gpu_clock_mutex = *new std::mutex;
std::function<std::chrono::nanoseconds()>& g_gpu_clock =
    *new std::function<std::chrono::nanoseconds()>;  // g_gpu_clock_mutex

std::chrono::nanoseconds gpu_time() {
  const std::lock_guard lock(g_gpu_clock_mutex);
  return g_gpu_clock ? g_gpu_clock() : std::chrono::steady_clock::now().time_since_epoch();
}

// A point in a stream; `reached` rises when the stream has come to it.
struct Marker {
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;
  std::chrono::nanoseconds when{0};  // it was reached

  void reach() {
    {
      const std::lock_guard lock(mutex);
      reached = true;
      when = gpu_time();
    }
    changed.notify_all();
  }
  // False: it was not reached in that time.
  bool wait_for(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, time, [this] { return reached; });
  }
  bool is_reached() {
    const std::lock_guard lock(mutex);
    return reached;
  }
};

std::atomic<int64_t> g_graph_launches{0};
std::atomic<int64_t> g_registered_bytes{0};

std::mutex& g_mappings_mutex = *new std::mutex;
std::unordered_map<void*, size_t>& g_mappings = *new std::unordered_map<void*, size_t>;

cudaError_t map(void** memory, size_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    return cudaErrorMemoryAllocation;
  }
  const std::lock_guard lock(g_mappings_mutex);
  g_mappings.emplace(address, bytes);
  *memory = address;
  return cudaSuccess;
}

cudaError_t unmap(void* memory) {
  if (memory == nullptr) {
    return cudaSuccess;
  }
  const std::lock_guard lock(g_mappings_mutex);
  const auto found = g_mappings.find(memory);
  if (found == g_mappings.end()) {
    return cudaErrorInvalidValue;
  }
  munmap(memory, found->second);
  g_mappings.erase(found);
  return cudaSuccess;
}

// Streams and events by address. A lost GPU's streams and events are never destroyed; kept here,
// they are not taken for leaks.
class Kept {
 public:
  template <class T>
  T* add(T* object) {
    const std::lock_guard lock(mutex_);
    objects_.insert(object);
    return object;
  }
  void remove(void* object) {
    const std::lock_guard lock(mutex_);
    objects_.erase(object);
  }

 private:
  std::mutex mutex_;
  std::unordered_set<void*> objects_;  // guarded by mutex_
};
Kept& g_kept = *new Kept;

// The work of a stream and its thread, which is detached: with a lost GPU it stays to the process's
// end.
class WorkQueue {
 public:
  void push(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    changed_.notify_all();
  }
  void work_off() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ending_ || !queue_.empty(); });
      if (queue_.empty()) {
        ended_ = true;
        changed_.notify_all();
        return;
      }
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      if (!fault().is_there() && fault().gpu() == gpu_) {
        work();
      }
    }
  }
  // Once everything has run.
  void end() {
    std::unique_lock lock(mutex_);
    ending_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return ended_; });
  }

 private:
  const int gpu_ = fault().gpu();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool ending_ = false;
  bool ended_ = false;
};

struct Stream final : CudaOnHostStream {
  Stream() {
    std::thread([work = work] { work->work_off(); }).detach();
  }
  ~Stream() { work->end(); }
  void push(std::function<void()> given) override {
    if (captured != nullptr) {
      captured->push_back(std::move(given));
    } else {
      work->push(std::move(given));
    }
  }
  // What CUDA refuses while it is captured; the capture is then lost.
  cudaError_t refuse_in_capture() {
    if (captured == nullptr) {
      return cudaSuccess;
    }
    is_lost = true;
    return t_last_error = cudaErrorStreamCaptureUnsupported;
  }

  std::unique_ptr<std::vector<std::function<void()>>> captured;  // null: it is not captured
  bool is_lost = false;
  const std::shared_ptr<WorkQueue> work = std::make_shared<WorkQueue>();
};

}  // namespace

struct CudaOnHostGraph {
  std::vector<std::function<void()>> work;
};

struct CudaOnHostEvent {
  std::shared_ptr<Marker> marker;  // of the last time that it was recorded; null: never
};

namespace {
cudaError_t refuse_in_capture(cudaStream_t stream) {
  return static_cast<Stream*>(stream)->refuse_in_capture();
}
}  // namespace

cudaError_t cudaDriverGetVersion(int* version) {
  *version = g_machine.driver;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = g_machine.gpus;
  return g_machine.error;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int /*device*/) {
  std::snprintf(properties->name, sizeof(properties->name), "host as GPU");
  properties->major = g_machine.major;
  properties->minor = g_machine.minor;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int /*device*/) {
  *value = attribute == cudaDevAttrMultiProcessorCount || g_machine.reaches_registered ? 1 : 0;
  return fault().report();
}
cudaError_t cudaGetLastError() {
  return fault().is_there() ? fault().report() : std::exchange(t_last_error, cudaSuccess);
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int /*device*/) {
  std::snprintf(text, static_cast<size_t>(length), "0000:65:00.0");
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device >= g_machine.gpus) {
    return t_last_error = cudaErrorInvalidDevice;
  }
  return fault().report();
}
cudaError_t cudaDeviceSynchronize() { return fault().report_or_hang(); }  // after cudaMemset alone
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return fault().report();
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = g_machine.free_bytes;
  *total = g_machine.memory_bytes;
  return fault().report();
}
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (fault().strikes(cuda_on_host::GpuFault::In::kMemory) || bytes > g_machine.free_bytes) {
    return t_last_error = cudaErrorMemoryAllocation;
  }
  const cudaError_t error = fault().report_or_hang();
  return error == cudaSuccess ? map(memory, bytes) : error;
}
cudaError_t cudaFree(void* memory) {
  const cudaError_t error = fault().report_or_hang();
  return error == cudaSuccess ? unmap(memory) : error;
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned /*flags*/) {
  const cudaError_t error = fault().report_or_hang();
  return error == cudaSuccess ? map(memory, bytes) : error;
}
cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned /*flags*/) {
  const cudaError_t error = fault().report_or_hang();
  if (error != cudaSuccess) {
    return error;
  }
  if (fault().strikes(cuda_on_host::GpuFault::In::kRegister)) {
    return t_last_error = cudaErrorMemoryAllocation;
  }
  const std::lock_guard lock(g_mappings_mutex);
  g_mappings.emplace(memory, bytes);
  g_registered_bytes += static_cast<int64_t>(bytes);
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* memory) {
  const cudaError_t error = fault().report_or_hang();
  const std::lock_guard lock(g_mappings_mutex);
  const auto found = g_mappings.find(memory);
  if (error != cudaSuccess || found == g_mappings.end()) {
    return error == cudaSuccess ? cudaErrorInvalidValue : error;
  }
  g_registered_bytes -= static_cast<int64_t>(found->second);
  g_mappings.erase(found);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  const cudaError_t error = fault().report_or_hang();
  if (error == cudaSuccess) {
    std::memset(memory, value, bytes);
  }
  return error;
}

// From memory that is not pinned, CUDA has read the source when it returns; so does this.
cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  bool owned = false;
  {
    const std::lock_guard lock(g_mappings_mutex);
    for (const auto& [begin, length] : g_mappings) {
      owned = owned || (source >= begin && source < static_cast<const char*>(begin) + length);
    }
  }
  const void* from = source;
  std::shared_ptr<char[]> held;
  if (!owned) {
    cuda_on_host::note_wait("cudaMemcpyAsync of memory that is not pinned");
    held.reset(new char[bytes]);
    std::memcpy(held.get(), source, bytes);
    from = held.get();
  }
  stream->push([=] {
    if (!fault().strikes(cuda_on_host::GpuFault::In::kCopy)) {
      std::memcpy(target, from, bytes);
    }
    static_cast<void>(held);
  });
  return fault().report();
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned /*flags*/,
                                         int /*priority*/) {
  const cudaError_t error = fault().report();
  if (error == cudaSuccess) {
    *stream = g_kept.add(new Stream);
  }
  return error;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const cudaError_t error = fault().report_or_hang();
  if (error == cudaSuccess) {
    auto* own = static_cast<Stream*>(stream);
    g_kept.remove(own);
    delete own;
  }
  return error;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  cudaError_t error = fault().report_or_hang();
  error = error == cudaSuccess ? refuse_in_capture(stream) : error;
  if (error != cudaSuccess) {
    return error;
  }
  const auto marker = std::make_shared<Marker>();
  stream->push([marker] { marker->reach(); });
  while (!marker->wait_for(std::chrono::milliseconds(10))) {
    if (fault().is_there()) {
      return fault().report();
    }
  }
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  if (const cudaError_t error = refuse_in_capture(stream); error != cudaSuccess) {
    return error;
  }
  if (event->marker != nullptr) {  // as it is recorded now
    stream->push([marker = event->marker] {
      const int gpu = fault().gpu();
      while (!marker->wait_for(std::chrono::milliseconds(10)) && !fault().is_there() &&
             fault().gpu() == gpu) {
      }
    });
  }
  return fault().report();
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  *event = g_kept.add(new CudaOnHostEvent);
  return fault().report();
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const cudaError_t error = fault().report_or_hang();
  if (error == cudaSuccess) {
    g_kept.remove(event);
    delete event;
  }
  return error;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t error = refuse_in_capture(stream); error != cudaSuccess) {
    return error;
  }
  if (!fault().strikes(cuda_on_host::GpuFault::In::kEvent)) {
    event->marker = std::make_shared<Marker>();
    stream->push([marker = event->marker] { marker->reach(); });
  }
  return fault().report();
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t error = fault().report(); error != cudaSuccess) {
    return error;
  }
  return event->marker == nullptr || event->marker->is_reached() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* millis, cudaEvent_t begin, cudaEvent_t end) {
  if (!begin->marker->is_reached() || !end->marker->is_reached()) {
    return cudaErrorNotReady;
  }
  *millis =
      std::chrono::duration<float, std::milli>(end->marker->when - begin->marker->when).count();
  return fault().report();
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode /*mode*/) {
  auto* own = static_cast<Stream*>(stream);
  if (const cudaError_t error = own->refuse_in_capture(); error != cudaSuccess) {
    return error;
  }
  own->captured = std::make_unique<std::vector<std::function<void()>>>();
  own->is_lost = false;
  return fault().report();
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  auto* own = static_cast<Stream*>(stream);
  if (own->captured == nullptr) {
    return t_last_error = cudaErrorInvalidValue;
  }
  const auto captured = std::move(own->captured);
  *graph = own->is_lost ? nullptr : g_kept.add(new CudaOnHostGraph{std::move(*captured)});
  return own->is_lost ? t_last_error = cudaErrorStreamCaptureUnsupported : fault().report();
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long /*flags*/) {
  if (fault().strikes(cuda_on_host::GpuFault::In::kGraph)) {
    return t_last_error = cudaErrorMemoryAllocation;
  }
  *executable = g_kept.add(new CudaOnHostGraph{graph->work});
  return fault().report();
}
cudaError_t cudaGraphUpload(cudaGraphExec_t /*executable*/, cudaStream_t /*stream*/) {
  const bool is_full = fault().strikes(cuda_on_host::GpuFault::In::kGraph);
  return is_full ? t_last_error = cudaErrorMemoryAllocation : fault().report();
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (!fault().strikes(cuda_on_host::GpuFault::In::kLaunch)) {
    ++g_graph_launches;
    for (const std::function<void()>& work : executable->work) {
      stream->push(work);
    }
  }
  return fault().report();
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  g_kept.remove(graph);
  delete graph;
  return fault().report();
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return cudaGraphDestroy(executable);
}

namespace cuda_on_host {

int64_t graph_launches() { return g_graph_launches; }
int64_t registered_bytes() { return g_registered_bytes; }

void set_gpu_clock(std::function<std::chrono::nanoseconds()> clock) {
  const std::lock_guard lock(g_gpu_clock_mutex);
  g_gpu_clock = std::move(clock);
}

void enqueue(cudaStream_t stream, std::function<void()> work) {
  if (fault().strikes(GpuFault::In::kLaunch)) {
    return;  // cudaGetLastError returns the error
  }
  stream->push([work = std::move(work)] {
    if (!fault().strikes(GpuFault::In::kKernel)) {
      work();
    }
  });
}
void pretend(const Machine& machine) { g_machine = machine; }
void fail(const GpuFault& planned) { fault().plan(planned); }
void mend() { fault().clear(); }

}  // namespace cuda_on_host
