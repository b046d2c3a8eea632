#include "ceilings.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "hwy/highway.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tandem::bench {

namespace {

constexpr int kPasses = 7;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void pin_to_processor(int index) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
    return;  // unpinned figures are still figures
  }
  int seen = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed) && seen++ == index) {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      sched_setaffinity(0, sizeof(one), &one);
      return;
    }
  }
}

uint64_t read_all(const uint64_t* data, int64_t count) {
  constexpr int64_t kAhead = 96;  // 768 bytes: the best distance of 0.5 to 1 KB
  uint64_t sums[8] = {};
  for (int64_t i = 0; i < count; i += 8) {
    __builtin_prefetch(data + i + kAhead, 0, 3);
    for (int64_t j = 0; j < 8; ++j) {
      sums[j] ^= data[i + j];
    }
  }
  uint64_t sum = 0;
  for (const uint64_t part : sums) {
    sum ^= part;
  }
  return sum;
}

#if defined(__x86_64__)

constexpr int64_t kSteps = 20'000'000;

HWY_PUSH_ATTRIBUTES("avx512f,avx512vl,avx512bw,avx512dq,amx-tile,amx-bf16")
double amx_operations() {
  struct alignas(64) {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  alignas(64) uint16_t data[512];
  uint32_t state = 1;
  for (uint16_t& value : data) {  // random: the unit is faster on zeros
    state = state * 1664525U + 1013904223U;
    value = static_cast<uint16_t>(0x3f00U | (state >> 16 & 0x80ffU));
  }
  // gcc takes only the first bytes of it for used, and none of the data.
  asm volatile("" ::"r"(&config), "r"(data) : "memory");
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, data, 64);
  _tile_loadd(5, data, 64);
  _tile_loadd(6, data, 64);
  _tile_loadd(7, data, 64);
  for (int64_t step = 0; step < kSteps / 16; ++step) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return static_cast<double>(kSteps / 16) * 4 * 16 * 16 * 32 * 2;
}

double avx512_operations() {
  __m512 sums[12];
  for (__m512& sum : sums) {
    sum = _mm512_set1_ps(1.0F);
  }
  const __m512 factor = _mm512_set1_ps(0.999F);
  const __m512 term = _mm512_set1_ps(0.001F);
  for (int64_t step = 0; step < kSteps; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) {
      sums[i] = _mm512_fmadd_ps(sums[i], factor, term);
    }
  }
  for (const __m512& sum : sums) {
    asm volatile("" ::"v"(sum));
  }
  return static_cast<double>(kSteps) * 12 * 16 * 2;
}
HWY_POP_ATTRIBUTES

HWY_PUSH_ATTRIBUTES("avx2,fma")
double avx2_operations() {
  __m256 sums[12];
  for (__m256& sum : sums) {
    sum = _mm256_set1_ps(1.0F);
  }
  const __m256 factor = _mm256_set1_ps(0.999F);
  const __m256 term = _mm256_set1_ps(0.001F);
  for (int64_t step = 0; step < kSteps; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) {
      sums[i] = _mm256_fmadd_ps(sums[i], factor, term);
    }
  }
  for (const __m256& sum : sums) {
    asm volatile("" ::"x"(sum));
  }
  return static_cast<double>(kSteps) * 12 * 8 * 2;
}
HWY_POP_ATTRIBUTES

#endif

double operations_of(kernels::Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case kernels::Isa::kAmx:
      return amx_operations();
    case kernels::Isa::kAvx512:
      return avx512_operations();
    case kernels::Isa::kAvx2:
      return avx2_operations();
    default:
      return 0.0;
  }
#else
  (void)isa;
  return 0.0;
#endif
}

}  // namespace

double run_together(int threads, const std::function<void(int)>& body) {
  std::barrier start(threads);
  std::vector<std::thread> workers;
  std::vector<double> begins(static_cast<size_t>(threads));
  std::vector<double> ends(static_cast<size_t>(threads));
  for (int thread = 0; thread < threads; ++thread) {
    workers.emplace_back([&, thread] {
      pin_to_processor(thread);
      start.arrive_and_wait();
      begins[static_cast<size_t>(thread)] = seconds_now();
      body(thread);
      ends[static_cast<size_t>(thread)] = seconds_now();
    });
  }
  for (std::thread& worker : workers) {
    worker.join();
  }
  return *std::max_element(ends.begin(), ends.end()) -
         *std::min_element(begins.begin(), begins.end());
}

double read_ceiling(int threads) {
  constexpr int64_t kBytes = int64_t{512} << 20;
  constexpr int64_t kWords = kBytes / 8;
  std::vector<std::unique_ptr<uint64_t[]>> data;
  for (int thread = 0; thread < threads; ++thread) {
    data.push_back(std::make_unique_for_overwrite<uint64_t[]>(kWords));
    for (int64_t i = 0; i < kWords; ++i) {
      data.back()[static_cast<size_t>(i)] = static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15ULL;
    }
  }
  std::atomic<uint64_t> sink = 0;
  double best = 0.0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const double seconds = run_together(threads, [&](int thread) {
      sink.fetch_xor(read_all(data[static_cast<size_t>(thread)].get(), kWords));
    });
    best = std::max(best, static_cast<double>(threads) * kBytes / seconds);
  }
  return best;
}

double compute_ceiling(kernels::Isa isa, int threads) {
  double best = 0.0;
  for (int pass = 0; pass < kPasses; ++pass) {
    std::vector<double> operations(static_cast<size_t>(threads));
    const double seconds = run_together(
        threads, [&](int thread) { operations[static_cast<size_t>(thread)] = operations_of(isa); });
    double total = 0.0;
    for (const double part : operations) {
      total += part;
    }
    best = std::max(best, total / seconds);
  }
  return best;
}

}  // namespace tandem::bench
