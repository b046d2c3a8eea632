#include "fault.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <thread>

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

namespace cuda_on_host {
namespace {

bool is_error_of_gpu(GpuFault::In in) { return in < GpuFault::In::kMemory; }

}  // namespace

void note_wait(const char* call) {
  static const char* const kFile =
      std::getenv("CUDA_ON_HOST_WAITS");  // NOLINT(concurrency-mt-unsafe): nothing sets it
  static std::mutex mutex;
  if (kFile == nullptr) {
    return;
  }
  const std::lock_guard lock(mutex);
  if (std::FILE* file = std::fopen(kFile, "a")) {
    std::fprintf(file, "%s\n", call);
    std::fclose(file);
  }
}

void Fault::plan(const GpuFault& fault) {
  const std::lock_guard lock(mutex_);
  planned_ = fault;
  left_ = fault.at;
}

void Fault::clear() {
  const std::lock_guard lock(mutex_);
  planned_.reset();
  error_ = cudaSuccess;
  reported_ = false;
  t_last_error = cudaSuccess;
  ++gpus_;
}

bool Fault::strikes(GpuFault::In in) {
  read_environment();
  const std::lock_guard lock(mutex_);
  if (!planned_ || planned_->in != in ||
      (!trigger_.empty() && access(trigger_.c_str(), F_OK) != 0) || --left_ > 0) {
    return false;
  }
  if (is_error_of_gpu(in)) {
    error_ = planned_->error;
  }
  planned_.reset();
  return true;
}

cudaError_t Fault::report() {
  if (!is_there()) {
    return cudaSuccess;
  }
  reported_ = true;
  return t_last_error = error_;
}

cudaError_t Fault::report_or_hang(const char* call) {
  note_wait(call);
  while (is_there() && reported_) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  return report();
}

void Fault::read_environment() {
  std::call_once(read_, [this] {
    const char* text = std::getenv("CUDA_ON_HOST_FAULT");  // NOLINT(concurrency-mt-unsafe)
    char in[16] = {};
    char error[16] = {};
    char trigger[1024] = {};
    GpuFault fault;
    long long at = 0;
    if (text == nullptr ||
        std::sscanf(text, "%15[a-z]:%lld:%15[a-z]:%1023s", in, &at, error, trigger) < 3) {
      return;
    }
    trigger_ = trigger;
    const char* const names[] = {"kernel", "copy",  "launch",  "event",
                                 "memory", "graph", "register"};
    for (size_t i = 0; i < std::size(names); ++i) {
      if (std::strcmp(in, names[i]) == 0) {
        fault.in = static_cast<GpuFault::In>(i);
      }
    }
    fault.at = at;
    fault.error =
        std::strcmp(error, "ecc") == 0 ? cudaErrorECCUncorrectable : cudaErrorLaunchFailure;
    plan(fault);
  });
}

Fault& fault() {
  static Fault& fault = *new Fault;
  return fault;
}

}  // namespace cuda_on_host
