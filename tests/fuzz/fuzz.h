// What fuzz targets share. A target is one function over bytes that parses them and checks what
// must hold for every input:
//
//   TANDEM_FUZZ_TARGET(input) { ... }     // input: std::string_view
//
// Crashes, sanitizer reports, failed CHECKs, leaks, more than the memory limit and more than the
// time limit of scripts/fuzz.sh are findings.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
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

namespace tandem::fuzz {

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
