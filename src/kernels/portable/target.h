// Compiles the including source once per vector target (AVX2 and AVX-512 on x86, NEON on aarch64).
// No include guard: the source is included again for every target. A source looks like this:
//
//   #include ... (ordinary headers)
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "kernels/portable/<file>.cc"
//   #include "kernels/portable/target.h"
//   #if TANDEM_PORTABLE_TARGET
//   HWY_BEFORE_NAMESPACE();
//   namespace tandem::kernels::portable::HWY_NAMESPACE {
//   namespace hn = hwy::HWY_NAMESPACE;
//   ... kernels (in an inner anonymous namespace) ...
//   void fill_<family>(Kernels& table) { table.rms_norm = rms_norm; ... }
//   }
//   HWY_AFTER_NAMESPACE();
//   #endif
//   #if HWY_ONCE
//   namespace tandem::kernels::portable { TANDEM_PORTABLE_EXPORT(fill_<family>, Kernels) }
//   #endif
//
// Only functions between HWY_BEFORE_NAMESPACE and HWY_AFTER_NAMESPACE use a target's instructions,
// so inline functions of shared headers stay runnable on every machine. No lambdas in there: gcc
// and clang disagree on whether they inherit the target.

#if !defined(HWY_DISABLED_TARGETS)
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"         // IWYU pragma: keep

// The static target of x86 builds (scalar) is not a family: `ref` is.
#undef TANDEM_PORTABLE_TARGET
#define TANDEM_PORTABLE_TARGET \
  (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON)

// Defines name(Isa, Table&), declared in portable.h, over the targets' name(Table&).
#undef TANDEM_PORTABLE_EXPORT
#if HWY_ARCH_X86
#define TANDEM_PORTABLE_EXPORT(name, Table) \
  void name(Isa isa, Table& table) {        \
    if (isa == Isa::kAvx2) {                \
      N_AVX2::name(table);                  \
    } else {                                \
      N_AVX3::name(table);                  \
    }                                       \
  }
#else
#define TANDEM_PORTABLE_EXPORT(name, Table) \
  void name(Isa, Table& table) { N_NEON::name(table); }
#endif
