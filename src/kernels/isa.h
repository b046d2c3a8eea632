// The instruction-set families that kernels are written for. Any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem::kernels {

// What may be forced by --isa. Names: ref, neon, avx2, avx512, avx512bf16, amx.
enum class Isa : uint8_t { kRef, kNeon, kAvx2, kAvx512, kAvx512Bf16, kAmx };

// Families that this machine can run, best last; kRef is always there. Asks the operating system
// for AMX when the CPU has it. Where AVX-512 BF16 is slower than multiply-adds (Intel's processors
// do a quarter of its products in the same time), it stands before kAvx512.
std::vector<Isa> available_isas();
// All that there are, on any machine.
std::vector<Isa> known_isas();
std::string_view isa_name(Isa isa);
Result<Isa> parse_isa(std::string_view name);  // an unknown name: error with the known ones

}  // namespace tandem::kernels
