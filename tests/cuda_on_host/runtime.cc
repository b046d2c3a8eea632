#include <sys/mman.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "cuda_runtime_api.h"

namespace {

cuda_on_host::Machine g_machine;
std::atomic<cudaError_t> g_failure{cudaSuccess};

// A point in a stream; `reached` rises when the stream has come to it.
struct Marker {
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;

  void reach() {
    {
      const std::lock_guard lock(mutex);
      reached = true;
    }
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return reached; });
  }
  bool is_reached() {
    const std::lock_guard lock(mutex);
    return reached;
  }
};

std::mutex g_mappings_mutex;
std::unordered_map<void*, size_t> g_mappings;

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

}  // namespace

struct CudaOnHostStream {
  CudaOnHostStream() : thread([this] { work_off(); }) {}
  ~CudaOnHostStream() {
    {
      const std::lock_guard lock(mutex);
      ending = true;
    }
    changed.notify_one();
    thread.join();
  }
  void push(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex);
      queue.push_back(std::move(work));
    }
    changed.notify_one();
  }
  void work_off() {
    for (;;) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [this] { return ending || !queue.empty(); });
      if (queue.empty()) {
        return;
      }
      const std::function<void()> work = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      work();
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  bool ending = false;
  std::thread thread;  // last: uses all of the above
};

struct CudaOnHostEvent {
  std::shared_ptr<Marker> marker;  // of the last time that it was recorded; null: never
};

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorECCUncorrectable:
      return "cudaErrorECCUncorrectable";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    default:
      return "another error";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorECCUncorrectable:
      return "uncorrectable ECC error encountered";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    default:
      return "an error of the host's CUDA";
  }
}

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
cudaError_t cudaSetDevice(int device) {
  return device < g_machine.gpus ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }  // used after cudaMemset alone
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = g_machine.free_bytes;
  *total = g_machine.memory_bytes;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  return bytes > g_machine.free_bytes ? cudaErrorMemoryAllocation : map(memory, bytes);
}
cudaError_t cudaFree(void* memory) { return unmap(memory); }
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned /*flags*/) {
  return map(memory, bytes);
}
cudaError_t cudaFreeHost(void* memory) { return unmap(memory); }
cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
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
  if (owned) {
    stream->push([=] { std::memcpy(target, source, bytes); });
  } else {
    std::shared_ptr<char[]> held(new char[bytes]);
    std::memcpy(held.get(), source, bytes);
    stream->push([=] { std::memcpy(target, held.get(), bytes); });
  }
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned /*flags*/,
                                         int /*priority*/) {
  *stream = new CudaOnHostStream;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const auto marker = std::make_shared<Marker>();
  stream->push([marker] { marker->reach(); });
  marker->wait();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  if (event->marker != nullptr) {  // as it is recorded now
    stream->push([marker = event->marker] { marker->wait(); });
  }
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  *event = new CudaOnHostEvent;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->marker = std::make_shared<Marker>();
  stream->push([marker = event->marker] { marker->reach(); });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const cudaError_t failure = g_failure.exchange(cudaSuccess);
  if (failure != cudaSuccess) {
    return failure;
  }
  return event->marker == nullptr || event->marker->is_reached() ? cudaSuccess : cudaErrorNotReady;
}

namespace cuda_on_host {

void enqueue(cudaStream_t stream, std::function<void()> work) { stream->push(std::move(work)); }
void pretend(const Machine& machine) { g_machine = machine; }
void fail_next_event(cudaError_t error) { g_failure = error; }

}  // namespace cuda_on_host
