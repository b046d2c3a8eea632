// The GPU's fault in the host's CUDA: planned, then there, then known to the program. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "cuda_runtime_api.h"

namespace cuda_on_host {

// What cudaGetLastError returns to a thread.
inline thread_local cudaError_t t_last_error = cudaSuccess;

class Fault {
 public:
  void plan(const GpuFault& fault);
  void clear();
  // Of the GPU that works now; streams of a lost GPU never run again.
  [[nodiscard]] int gpu() const { return gpus_; }
  // One more of these: does the GPU fail with it?
  bool strikes(GpuFault::In in);
  [[nodiscard]] bool is_there() const { return error_ != cudaSuccess; }
  cudaError_t report();  // what a call returns
  // The same for a call of CUDA that may wait, which is noted.
  cudaError_t report_or_hang(const char* call = __builtin_FUNCTION());

 private:
  void read_environment();

  std::once_flag read_;
  std::mutex mutex_;     // guards the members below
  std::string trigger_;  // constant once the environment was read
  std::optional<GpuFault> planned_;
  int64_t left_ = 0;
  std::atomic<cudaError_t> error_{cudaSuccess};
  std::atomic<bool> reported_{false};
  std::atomic<int> gpus_{0};
};

// CUDA_ON_HOST_WAITS names a file that gets a line with the name of each call that may make the
// caller or other streams wait.
void note_wait(const char* call);

// Lives to the process's end, as streams of a lost GPU do.
Fault& fault();

}  // namespace cuda_on_host
