// What fuzz targets share. A target is one function over bytes that parses them and checks what
// must hold for every input:
//
//   TANDEM_FUZZ_TARGET(input) { ... }            // input: std::string_view
//   TANDEM_FUZZ_TARGET_IN_TIME(input) { ... }    // the same, held to a budget of time by its bytes
//
// Crashes, sanitizer reports, failed CHECKs, leaks, more than the memory limit and more than the
// time limit of scripts/fuzz.sh are findings.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>

#include "base/check.h"

#define TANDEM_FUZZ_TARGET(input)                                           \
  static void fuzz_one(std::string_view input);                             \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { \
    fuzz_one({reinterpret_cast<const char*>(data), size});                  \
    return 0;                                                               \
  }                                                                         \
  static void fuzz_one(std::string_view input)

#define TANDEM_FUZZ_TARGET_IN_TIME(input)                                             \
  static void fuzz_one(std::string_view input);                                       \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {           \
    tandem::fuzz::run_in_time(fuzz_one, {reinterpret_cast<const char*>(data), size}); \
    return 0;                                                                         \
  }                                                                                   \
  static void fuzz_one(std::string_view input)

namespace tandem::fuzz {

// Of the thread, so that other processes do not count.
inline int64_t cpu_nanos() {
  timespec now{};
  CHECK(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0, "no clock");
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// What costs the square of its length takes seconds at 64 KiB, what is linear 20 ms in a release
// build. The factors are what checks and counters of the two presets cost, times three for a
// machine whose cores are shared: the slowest seed takes a sixth of its budget on an idle one.
inline int64_t budget_nanos(size_t bytes) {
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
  constexpr int64_t kSlowdown = 60;
#else
  constexpr int64_t kSlowdown = 15;
#endif
#else
  constexpr int64_t kSlowdown = 15;
#endif
  constexpr int64_t kFixed = 2'000'000;
  constexpr int64_t kPer64KiB = 20'000'000;
  return kSlowdown * (kFixed + kPer64KiB * static_cast<int64_t>(bytes) / 65536);
}

// The best of three counts: the first run of all sets things up.
inline void run_in_time(void (*target)(std::string_view), std::string_view input) {
  const int64_t budget = budget_nanos(input.size());
  int64_t best = INT64_MAX;
  for (int i = 0; i < 3 && best > budget; ++i) {
    const int64_t begin = cpu_nanos();
    target(input);
    best = std::min(best, cpu_nanos() - begin);
  }
  CHECK(best <= budget, "{} bytes took {} us, {} us is the budget", input.size(), best / 1000,
        budget / 1000);
}

// A file in memory under a path, for parsers that open theirs themselves.
class MemoryFile {
 public:
  MemoryFile() : file_(::memfd_create("fuzz", 0)) { CHECK(file_ >= 0, "no memory file"); }
  ~MemoryFile() { ::close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  void write(std::string_view content) const {
    CHECK(::ftruncate(file_, 0) == 0, "a memory file cannot be emptied");
    const ssize_t written = ::pwrite(file_, content.data(), content.size(), 0);
    CHECK(written == static_cast<ssize_t>(content.size()), "{} bytes written", written);
  }
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

// The result of the input is not needed, but must not be optimised away.
inline void use(size_t value) { asm volatile("" : : "r"(value) : "memory"); }

}  // namespace tandem::fuzz
