// The part of the CUDA runtime's interface that src/device/cuda uses, played by the host, so that
// tests run the back end and its kernels without a GPU. It takes the place of the toolkit's
// header of the same name: only targets of this folder see it. Streams are threads that run what is
// put on them in order; "device" memory is the process's own.
//
// A GPU can be made to fail (GpuFault). As with a real one, every call returns that error from then
// on, and nothing that was launched runs. Calls that might wait for a lost GPU never return once
// the error has been reported by any call: so a test hangs where the back end makes one.
//
// It shows that the back end computes, orders, waits and counts rightly under CUDA's rules as this
// file understands them. It shows nothing of a driver, of speed, or of what only a GPU refuses,
// such as a host that reads device memory.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>

#define CUDART_VERSION 13000

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorDevicesUnavailable = 46,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorECCUncorrectable = 214,
  cudaErrorNotReady = 600,
  cudaErrorLaunchTimeout = 702,
  cudaErrorLaunchFailure = 719,
  cudaErrorSystemNotReady = 802,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorUnknown = 999,
};

struct CudaOnHostStream {
  // Runs behind everything that was given before. Virtual, so that another shared library, which
  // plays a part of CUDA itself, can use the stream that it is handed.
  virtual void push(std::function<void()> work) = 0;

 protected:
  ~CudaOnHostStream() = default;
};
struct CudaOnHostEvent;
struct CudaOnHostGraph;
using cudaStream_t = CudaOnHostStream*;
using cudaEvent_t = CudaOnHostEvent*;
using cudaGraph_t = CudaOnHostGraph*;
using cudaGraphExec_t = CudaOnHostGraph*;

struct cudaDeviceProp {
  char name[256];
  int major;
  int minor;
};

enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrCanUseHostPointerForRegisteredMem = 91,
};
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed = 2 };
inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDisableTiming = 2;
inline constexpr unsigned cudaHostAllocPortable = 1;
inline constexpr unsigned cudaHostRegisterPortable = 1;
inline constexpr unsigned cudaHostRegisterMapped = 2;

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
// The last error of the calling thread, which is forgotten by this unless it is a GPU's fault.
cudaError_t cudaGetLastError();
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void* memory);
cudaError_t cudaMemset(void* memory, int value, size_t bytes);
cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* millis, cudaEvent_t begin, cudaEvent_t end);
// While a stream is captured, what is put on it does not run, and it cannot be waited for, nor
// wait, nor get an event.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);

namespace cuda_on_host {

// The GPU's clock, for the distance of events; empty: the machine's. Any thread calls it, also
// streams of GPUs that failed earlier, until the next call of this.
void set_gpu_clock(std::function<std::chrono::nanoseconds()> clock);

// How many graphs have been launched in this process.
int64_t graph_launches();
// Bytes of registered memory.
int64_t registered_bytes();

// In place of a kernel launch.
void enqueue(cudaStream_t stream, std::function<void()> work);

// What the machine seems to be. Set before anything else is called.
struct Machine {
  int driver = 13000;               // 0: there is none
  cudaError_t error = cudaSuccess;  // of every question for GPUs
  int gpus = 1;
  int major = 9;
  int minor = 0;
  size_t memory_bytes = size_t{16} << 30;
  size_t free_bytes = size_t{15} << 30;
  bool reaches_registered = true;  // kernels reach registered memory at the host's addresses
};
void pretend(const Machine& machine);

// The GPU fails while it does the `at`-th of these from now on.
struct GpuFault {
  enum class In : uint8_t {
    kKernel,    // while it runs
    kCopy,      // while it runs
    kLaunch,    // the call that launches a kernel fails
    kEvent,     // the call that records an event fails
    kMemory,    // a call that takes device memory; no fault of the GPU: it is full
    kGraph,     // a call that makes a graph to launch or uploads it; likewise
    kRegister,  // a call that registers memory; likewise
  };
  In in = In::kKernel;
  int64_t at = 1;
  cudaError_t error = cudaErrorLaunchFailure;
};
// Also by the environment: CUDA_ON_HOST_FAULT="kernel:500:launch", with kernel, copy, launch,
// event, memory or graph, and launch or ecc; "kernel:500:launch:FILE" counts once FILE is there.
void fail(const GpuFault& fault);
// Another process of the same machine, so to say: the GPU works, and nothing is planned.
void mend();

}  // namespace cuda_on_host
