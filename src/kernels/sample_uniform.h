// The uniform number that a token is drawn with: a function of the row's seed and the token's
// position, the same in every kernel family and on every device.
#pragma once

#include <cstdint>

namespace tandem::kernels {

// In [0, 1), 53 bits.
//
// Philox4x32-10: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
constexpr double sample_uniform(uint64_t seed, uint64_t position) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  uint32_t counter[4] = {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0,
                         0};
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    const uint32_t next[4] = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
                              static_cast<uint32_t>(product1),
                              static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
                              static_cast<uint32_t>(product0)};
    for (int i = 0; i < 4; ++i) {
      counter[i] = next[i];
    }
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  const uint64_t bits = (uint64_t{counter[0]} << 32 | counter[1]) >> 11;
  return static_cast<double>(bits) * 0x1.0p-53;
}

}  // namespace tandem::kernels
