#include "device/cuda/pinned_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "device/cpu/machine.h"

namespace tandem::device::cuda {
namespace {

constexpr int64_t kPieceBytes = int64_t{64} << 20;
constexpr size_t kMaxThreads = 8;
constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which older headers lack
constexpr int64_t kSmallPageBytes = 4096;

// Makes the pages of a range. False: there is no memory for them.
bool populate(std::byte* begin, int64_t bytes) {
  if (madvise(begin, static_cast<size_t>(bytes), kPopulateWrite) == 0) {
    return true;
  }
  if (errno != EINVAL) {
    return false;
  }
  for (int64_t i = 0; i < bytes; i += kSmallPageBytes) {  // a kernel before 5.14
    *static_cast<volatile std::byte*>(begin + i) = std::byte{0};
  }
  return true;
}

bool populate_in_parallel(const Pages& pages) {
  std::atomic<int64_t> next{0};
  std::atomic<bool> is_made{true};
  const auto work = [&] {
    for (int64_t at = 0; is_made && (at = next.fetch_add(kPieceBytes)) < pages.bytes();) {
      if (!populate(pages.data() + at, std::min(kPieceBytes, pages.bytes() - at))) {
        is_made = false;
      }
    }
  };
  std::vector<std::thread> threads(std::min(allowed_cpus().size(), kMaxThreads) - 1);
  for (std::thread& thread : threads) {
    thread = std::thread(work);
  }
  work();
  for (std::thread& thread : threads) {
    thread.join();
  }
  return is_made;
}

// Whether kernels of the GPU reach registered memory at the host's own addresses.
bool reaches_registered(int device) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, cudaDevAttrCanUseHostPointerForRegisteredMem, device) ==
             cudaSuccess &&
         value != 0;
}

}  // namespace

cudaError_t PinnedMemory::take(int device, int64_t bytes) {
  // Pages that the machine has no memory for would be made until the kernel ends the process.
  if (bytes >= kLargeBytes && bytes > machine_memory().free_bytes) {
    return cudaErrorMemoryAllocation;
  }
  if (bytes >= kLargeBytes && reaches_registered(device)) {
    std::optional<Pages> pages = Pages::map(bytes);
    if (!pages.has_value() || !populate_in_parallel(*pages)) {
      return cudaErrorMemoryAllocation;
    }
    const cudaError_t error = cudaHostRegister(pages->data(), static_cast<size_t>(bytes),
                                               cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (error == cudaSuccess) {
      registered_ = std::move(*pages);
      begin_ = registered_.data();
      return cudaSuccess;
    }
    cudaGetLastError();  // CUDA's own allocation is tried, which says what is wrong
  }
  void* begin = nullptr;
  const cudaError_t error =
      cudaHostAlloc(&begin, static_cast<size_t>(bytes), cudaHostAllocPortable);
  begin_ = static_cast<std::byte*>(begin);
  return error;
}

cudaError_t PinnedMemory::end() {
  if (begin_ == nullptr) {
    return cudaSuccess;
  }
  const cudaError_t error = is_zeroed() ? cudaHostUnregister(begin_) : cudaFreeHost(begin_);
  begin_ = nullptr;
  registered_ = Pages();
  return error;
}

}  // namespace tandem::device::cuda
