// Numbers too small for a normal float count as zero while one of these lives, in operands and in
// results, as the instructions for products of pairs have it: so vector families agree with them
// bit for bit. Of the calling thread. Elsewhere than on x86 it does nothing: there is no such
// family.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tandem::kernels {

class FlushDenormals {
 public:
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;
#if defined(__x86_64__)
  FlushDenormals() : before_(_mm_getcsr()) {
    constexpr unsigned kOperands = 0x0040;
    constexpr unsigned kResults = 0x8000;
    _mm_setcsr(before_ | kOperands | kResults);
  }
  ~FlushDenormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#else
  FlushDenormals() {}
  ~FlushDenormals() {}
#endif
};

}  // namespace tandem::kernels
