// The tile configuration of the matrix unit, for the kernels of this folder.
#pragma once

#include <cstdint>

namespace tandem::kernels::amx {

inline constexpr int64_t kTileRows = 16;  // at most
inline constexpr int64_t kTileRowBytes = 64;
inline constexpr int64_t kTileBytes = kTileRows * kTileRowBytes;

// The first bytes that a tile configuration register takes.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_per_row[16] = {};
  uint8_t rows[16] = {};
};

// Makes stores before it visible to tile loads after it, and the other way round: gcc does not see
// that tile instructions touch memory.
inline void memory_barrier() { asm volatile("" ::: "memory"); }

// Has all stores to the configuration done, for gcc takes only its first bytes for used; a barrier
// without the address leaves out a variable that nobody else can see.
inline void finish_config(const void* config) { asm volatile("" ::"r"(config) : "memory"); }

}  // namespace tandem::kernels::amx
