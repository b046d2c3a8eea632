// Which kernel families this machine can run, and their tables.
#include <array>
#include <string>

#include "kernels/kernels.h"
#include "kernels/portable/portable.h"
#include "kernels/ref/ref.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/amx/amx.h"
#include "kernels/avx2/avx2.h"
#include "kernels/avx512bf16/avx512bf16.h"
#include "kernels/avx512vnni/avx512vnni.h"
#elif TANDEM_NEON_DOT
#include <sys/auxv.h>

#include "kernels/neondot/neondot.h"
#endif

namespace tandem::kernels {

namespace {

struct IsaName {
  Isa isa;
  const char* name;
};
constexpr std::array kNames = {IsaName{Isa::kRef, "ref"},
                               IsaName{Isa::kNeon, "neon"},
                               IsaName{Isa::kAvx2, "avx2"},
                               IsaName{Isa::kAvx512, "avx512"},
                               IsaName{Isa::kAvx512Bf16, "avx512bf16"},
                               IsaName{Isa::kAmx, "amx"}};

Kernels ref_table() {
  Kernels table;
  table.isa = Isa::kRef;
  table.name = "ref";
  ref::fill_gemm(table);
  ref::fill_rowwise(table);
  ref::fill_attention(table);
  ref::fill_sample(table);
  return table;
}

Kernels portable_table(Isa isa) {
  Kernels table;
  table.isa = isa;
  table.name = isa_name(isa).data();
  portable::fill_gemm(isa, table);
  portable::fill_rowwise(isa, table);
  portable::fill_attention(isa, table);
  portable::fill_sample(isa, table);
  return table;
}

#if defined(__x86_64__)

Kernels avx2_table() {
  Kernels table = portable_table(Isa::kAvx2);
  avx2::fill_gemm(table);
  return table;
}

Kernels avx512_table() {
  Kernels table = portable_table(Isa::kAvx512);
  if (__builtin_cpu_supports("avx512vnni") != 0) {
    avx512vnni::fill_gemm(table);
  }
  return table;
}

Kernels avx512bf16_table() {
  Kernels table = portable_table(Isa::kAvx512);
  table.isa = Isa::kAvx512Bf16;
  table.name = "avx512bf16";
  avx512bf16::fill_gemm(table);
  return table;
}

Kernels amx_table() {
  Kernels table = portable_table(Isa::kAvx512);
  table.isa = Isa::kAmx;
  table.name = "amx";
  amx::fill_gemm(table);
  amx::fill_attention(table);
  return table;
}

bool has_f16c_and_aes() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  constexpr unsigned kF16c = 1U << 29;
  constexpr unsigned kAes = 1U << 25;
  constexpr unsigned kWanted = kF16c | kAes;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & kWanted) == kWanted;
}

// The builtin also checks that the operating system saves the registers.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
         __builtin_cpu_supports("bmi") != 0 && __builtin_cpu_supports("bmi2") != 0 &&
         __builtin_cpu_supports("pclmul") != 0 && has_f16c_and_aes();
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") != 0 &&
         __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0;
}

// Every processor with products of pairs also has products of bytes.
bool has_avx512bf16() {
  return has_avx512() && __builtin_cpu_supports("avx512bf16") != 0 &&
         __builtin_cpu_supports("avx512vnni") != 0;
}

// True when the CPU has AMX BF16 and the operating system lets this process use it; the permission
// is for all threads, and asking again is harmless.
bool has_amx() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  constexpr unsigned kAmxBf16 = 1U << 22;
  constexpr unsigned kAmxTile = 1U << 24;
  constexpr unsigned kWanted = kAmxBf16 | kAmxTile;
  if (!has_avx512bf16() || __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 ||
      (edx & kWanted) != kWanted) {
    return false;
  }
  constexpr int64_t kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int64_t kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

#elif defined(__aarch64__)

Kernels neon_table() {
  Kernels table = portable_table(Isa::kNeon);
#if TANDEM_NEON_DOT
  constexpr uint64_t kDotProducts = 1U << 20;  // HWCAP_ASIMDDP
  if ((getauxval(AT_HWCAP) & kDotProducts) != 0) {
    neondot::fill_gemm(table);
  }
#endif
  return table;
}

#endif

}  // namespace

std::vector<Isa> available_isas() {
  std::vector<Isa> isas = {Isa::kRef};
#if defined(__x86_64__)
  if (has_avx2()) {
    isas.push_back(Isa::kAvx2);
  }
  // Products of pairs take AMD's processors as long as multiply-adds and Intel's four times as
  // long.
  const bool fast_pairs = __builtin_cpu_is("amd") != 0;
  if (has_avx512bf16() && !fast_pairs) {
    isas.push_back(Isa::kAvx512Bf16);
  }
  if (has_avx512()) {
    isas.push_back(Isa::kAvx512);
  }
  if (has_avx512bf16() && fast_pairs) {
    isas.push_back(Isa::kAvx512Bf16);
  }
  if (has_amx()) {
    isas.push_back(Isa::kAmx);
  }
#elif defined(__aarch64__)
  isas.push_back(Isa::kNeon);
#endif
  return isas;
}

std::vector<Isa> known_isas() {
  std::vector<Isa> isas;
  isas.reserve(kNames.size());
  for (const IsaName& entry : kNames) {
    isas.push_back(entry.isa);
  }
  return isas;
}

std::string_view isa_name(Isa isa) {
  for (const IsaName& entry : kNames) {
    if (entry.isa == isa) {
      return entry.name;
    }
  }
  CHECK(false, "no such instruction set: {}", static_cast<int>(isa));
  return {};
}

Result<Isa> parse_isa(std::string_view name) {
  std::string known;
  for (const IsaName& entry : kNames) {
    if (name == entry.name) {
      return entry.isa;
    }
    known += known.empty() ? "" : ", ";
    known += entry.name;
  }
  return invalid_argument("unknown instruction set \"" + std::string(name) + "\"; known: " + known,
                          "isa");
}

Result<const Kernels*> kernels_for(Isa isa) {
  std::string names;
  bool found = false;
  for (const Isa available : available_isas()) {
    found = found || available == isa;
    names += names.empty() ? "" : ", ";
    names += isa_name(available);
  }
  if (!found) {
    return Error{ErrorCode::kUnsupported,
                 "this machine cannot run the " + std::string(isa_name(isa)) +
                     " kernels; it can run: " + names,
                 "isa"};
  }
  switch (isa) {
    case Isa::kRef: {
      static const Kernels table = ref_table();
      return &table;
    }
#if defined(__x86_64__)
    case Isa::kAvx2: {
      static const Kernels table = avx2_table();
      return &table;
    }
    case Isa::kAvx512: {
      static const Kernels table = avx512_table();
      return &table;
    }
    case Isa::kAvx512Bf16: {
      static const Kernels table = avx512bf16_table();
      return &table;
    }
    case Isa::kAmx: {
      static const Kernels table = amx_table();
      return &table;
    }
#elif defined(__aarch64__)
    case Isa::kNeon: {
      static const Kernels table = neon_table();
      return &table;
    }
#endif
    default:
      break;
  }
  return Error{ErrorCode::kUnsupported, "not built for this processor", "isa"};
}

}  // namespace tandem::kernels
