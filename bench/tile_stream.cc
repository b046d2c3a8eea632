// What reading weights and computing on them cost one core, apart and together: the loops that
// docs/measurements/2026-11-22-xeon-amx.md names where products of 17 to 96 rows are. Nanoseconds a
// step of 32 columns and 32 depths (2 KB of weights), medians of passes in turn. Needs AMX; nothing
// else may run.
//
// cmake --build build/release --target tile_stream && build/release/bench/tile_stream
#include <fmt/format.h>
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/cpu/pages.h"
#include "kernels/amx/tiles.h"
#include "kernels/kernels.h"

namespace {

using tandem::device::Pages;
using tandem::kernels::amx::kTileBytes;
using tandem::kernels::amx::kTileRowBytes;

constexpr int64_t kSteps = 64;  // a depth of 2048
constexpr int64_t kStepBytes = 2 * kTileBytes;
constexpr int64_t kPanelBytes = kSteps * kStepBytes;
constexpr int64_t kXStride = kSteps * kTileRowBytes + kTileRowBytes;  // an odd number of lines
constexpr int64_t kStreamBytes = int64_t{1} << 30;
constexpr int64_t kYStride = 11264 * 4 + 64;
constexpr int64_t kYRowBytes = 11264 * 4;
constexpr int kPasses = 9;
constexpr int kPanels = 60;  // a pass

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Random, never zeros: the matrix unit is faster on these.
Pages random_pages(int64_t bytes) {
  std::optional<Pages> pages = Pages::map(bytes);
  if (!pages) {
    fmt::print(stderr, "tile_stream: no {} MiB of memory to be had\n", bytes >> 20);
    std::exit(1);
  }
  uint64_t state = 77;
  for (int64_t at = 0; at + 8 <= bytes; at += 8) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const uint64_t small = (state & 0x81ff81ff81ff81ffU) | 0x3c003c003c003c00U;
    std::memcpy(pages->data() + at, &small, 8);
  }
  return std::move(*pages);
}

struct Place {
  const char* x = nullptr;
  const char* w = nullptr;
  const char* next = nullptr;  // fetched from there on
};

template <int kLines>
inline void fetch(const char*& at) {
  for (int line = 0; line < kLines; ++line, at += 64) {
    _mm_prefetch(at, _MM_HINT_T1);
  }
}
inline void fetch_own(const char* at) {
  for (int64_t line = 0; line < kTileBytes; line += 64) {
    _mm_prefetch(at + line, _MM_HINT_T0);
  }
}

// A unit of kGroups row groups and one panel. kStream: its weights are fetched 1 KB ahead.
// kLines: of the next panel are fetched meanwhile, a step.
template <int kGroups, bool kStream, int kLines>
void unit(const Place& place) {
  constexpr int kLoads = kGroups == 3 ? 8 : 2 + kGroups;
  constexpr int kEach = kLines / kLoads;
  const char* w = place.w;
  const char* next = place.next;
  const char* x0 = place.x;
  const char* x1 = x0 + 16 * kXStride;
  const char* x2 = x1 + 16 * kXStride;
  for (int64_t step = 0; step < kSteps; ++step, w += kStepBytes) {
    const int64_t at = step * kTileRowBytes;
    if constexpr (kStream) {
      fetch_own(w + kTileBytes);
    }
    fetch<kLines - kEach*(kLoads - 1)>(next);
    _tile_loadd(7, x0 + at, kXStride);
    fetch<kEach>(next);
    _tile_loadd(6, w, 64);
    _tile_dpbf16ps(0, 7, 6);
    if constexpr (kGroups < 3) {
      if constexpr (kStream) {
        fetch_own(w + 2 * kTileBytes);
      }
      fetch<kEach>(next);
      _tile_loadd(5, w + kTileBytes, 64);
      _tile_dpbf16ps(1, 7, 5);
      if constexpr (kGroups > 1) {
        fetch<kEach>(next);
        _tile_loadd(4, x1 + at, kXStride);
        _tile_dpbf16ps(2, 4, 6);
        _tile_dpbf16ps(3, 4, 5);
      }
    } else {
      fetch<kEach>(next);
      _tile_loadd(7, x1 + at, kXStride);
      _tile_dpbf16ps(2, 7, 6);
      fetch<kEach>(next);
      _tile_loadd(7, x2 + at, kXStride);
      _tile_dpbf16ps(4, 7, 6);
      if constexpr (kStream) {
        fetch_own(w + 2 * kTileBytes);
      }
      fetch<kEach>(next);
      _tile_loadd(6, w + kTileBytes, 64);
      _tile_dpbf16ps(5, 7, 6);
      fetch<kEach>(next);
      _tile_loadd(7, x1 + at, kXStride);
      _tile_dpbf16ps(3, 7, 6);
      fetch<kEach>(next);
      _tile_loadd(7, x0 + at, kXStride);
      _tile_dpbf16ps(1, 7, 6);
    }
  }
}

void read_panel(const Place& place) {
  __m512i sum = _mm512_setzero_si512();
  for (int64_t at = 0; at < kPanelBytes; at += 64) {
    _mm_prefetch(place.w + at + 1024, _MM_HINT_T0);
    sum = _mm512_xor_si512(sum, _mm512_load_si512(place.w + at));
  }
  asm volatile("" ::"v"(sum));
}

struct Loop {
  std::string name;
  std::function<void(const Place&)> run;
  bool from_memory = true;
  std::vector<double> nanos = {};  // a step, of each pass
};

enum class Visit { kLoad, kFetch, kStore };

// Two groups of rows, and every `panels` panels a visit to each of their rows of y.
std::function<void(const Place&)> with_visits(char* y, Visit visit, int64_t panels, bool spread) {
  return [=, seen = int64_t{0}, column = int64_t{0}](const Place& place) mutable {
    unit<2, true, 0>(place);
    if (++seen % panels != 0) {
      return;
    }
    for (int64_t row = 0; row < 32; ++row) {
      char* at = y + row * kYStride + (spread ? column : 0);
      for (int64_t line = 0; line < panels * 128; line += 64) {
        if (visit == Visit::kFetch) {
          _mm_prefetch(at + line, _MM_HINT_T0);
        } else if (visit == Visit::kLoad) {
          asm volatile("" ::"v"(_mm512_load_si512(at + line)));
        } else {
          _mm512_store_si512(at + line, _mm512_set1_epi32(1));
        }
      }
    }
    column = column + 2 * panels * 128 > kYRowBytes ? 0 : column + panels * 128;
  };
}

// Two or three units of one panel; the next one's weights are fetched during those after the first.
template <class First, class... Rest>
std::function<void(const Place&)> in_turn(First first, Rest... rest) {
  return [=](Place place) {
    place.next = place.w + kPanelBytes;
    first(place);
    ((place.x += 32 * kXStride, rest(place), place.next += kSteps * 8 * 64), ...);
  };
}

std::vector<Loop> loops(char* y) {
  return {
      {"read", read_panel},
      {"compute, 16 rows, weights in L2", unit<1, false, 0>, false},
      {"compute, 32 rows, weights in L2", unit<2, false, 0>, false},
      {"compute, 48 rows, weights in L2", unit<3, false, 0>, false},
      {"both, 16 rows", unit<1, true, 0>},
      {"both, 32 rows", unit<2, true, 0>},
      {"both, 48 rows", unit<3, true, 0>},
      {"both, 48 rows, the next panel fetched", in_turn(unit<3, false, 32>)},
      {"both, 64 rows: 16, then 48", in_turn(unit<1, true, 0>, unit<3, false, 8>)},
      {"both, 64 rows: 32, then 32", in_turn(unit<2, true, 0>, unit<2, false, 0>)},
      {"both, 96 rows: 48, then 48", in_turn(unit<3, true, 0>, unit<3, false, 8>)},
      {"both, 32 rows, visits: loads, each panel", with_visits(y, Visit::kLoad, 1, true)},
      {"both, 32 rows, visits: fetches, each panel", with_visits(y, Visit::kFetch, 1, true)},
      {"both, 32 rows, visits: stores, each panel", with_visits(y, Visit::kStore, 1, true)},
      {"both, 32 rows, visits: stores, 8 panels", with_visits(y, Visit::kStore, 8, true)},
      {"both, 32 rows, visits: stores that stay in L1", with_visits(y, Visit::kStore, 1, false)},
  };
}

void measure(std::vector<Loop>& all, const char* x, const char* weights) {
  int64_t at = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    for (Loop& loop : all) {
      const double began = now();
      for (int panel = 0; panel < kPanels; ++panel) {
        const int64_t own = loop.from_memory ? at : panel % 4 * kPanelBytes;
        loop.run({x, weights + own, weights + own + kPanelBytes});
        tandem::kernels::amx::memory_barrier();
        at = at + 3 * kPanelBytes > kStreamBytes ? 0 : at + kPanelBytes;
      }
      loop.nanos.push_back((now() - began) / kPanels / kSteps * 1e9);
    }
  }
}

}  // namespace

int main() {
  if (!tandem::kernels::kernels_for(tandem::kernels::Isa::kAmx).ok()) {
    fmt::print(stderr, "tile_stream: this machine has no AMX\n");
    return 1;
  }
  const Pages weights = random_pages(kStreamBytes + 2 * kPanelBytes);
  const Pages x = random_pages(128 * kXStride);
  const Pages y = random_pages(32 * kYStride);
  tandem::kernels::amx::TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.rows[tile] = 16;
    config.bytes_per_row[tile] = 64;
  }
  tandem::kernels::amx::finish_config(&config);
  _tile_loadconfig(&config);
  std::vector<Loop> all = loops(reinterpret_cast<char*>(y.data()));
  measure(all, reinterpret_cast<const char*>(x.data()),
          reinterpret_cast<const char*>(weights.data()));
  _tile_release();
  for (Loop& loop : all) {
    std::sort(loop.nanos.begin(), loop.nanos.end());
    fmt::print("{:48} {:6.1f} ns a step [{:.1f}..{:.1f}]\n", loop.name, loop.nanos[kPasses / 2],
               loop.nanos.front(), loop.nanos.back());
  }
  return 0;
}
