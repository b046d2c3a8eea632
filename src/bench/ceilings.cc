#include "bench/ceilings.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "base/affinity.h"
#include "base/check.h"
#include "bench/measuring.h"
#include "device/cpu/pages.h"
#include "device/cpu/seats.h"
#include "device/cpu/spin.h"
#include "device/cpu/worker_pool.h"
#include "hwy/highway.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tandem::bench {

namespace {

constexpr int kPasses = 7;

// As a server's threads are: over the nodes, a core of its own for each as long as there are any.
std::vector<device::Seat> seats_of(int threads) {
  return device::seat_threads(device::share_threads(device::usable_nodes(), threads),
                              device::SeatWidth::kCpu);
}

constexpr int64_t kLine = 64;
constexpr int64_t kAheadBytes = 768;  // the best distance of 0.5 to 1 KB
constexpr int64_t kBlockBytes = 1024;

enum class Ahead { kLines, kPiece };

// One word of each line: the line comes whole. `next` is what is read after `data`; it is fetched
// from its start while the last block is read, or line by line a whole piece ahead.
uint64_t read_run(const std::byte* data, int64_t bytes, const std::byte* next, Ahead ahead) {
  uint64_t sums[4] = {};
  for (int64_t block = 0; block < bytes; block += kBlockBytes) {
    const bool last = block + kBlockBytes >= bytes;
    const std::byte* fetched = ahead == Ahead::kPiece ? next + block
                               : last                 ? next
                                                      : data + block + kAheadBytes;
    for (int64_t at = 0; at < kBlockBytes; at += kLine) {
      __builtin_prefetch(fetched + at, 0, 3);
      sums[at / kLine % 4] ^= *reinterpret_cast<const uint64_t*>(data + block + at);
    }
  }
  return sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
}

// Huge pages where the system gives them, as a server's weights and KV have; every word written.
device::Pages filled_pages(int64_t bytes) {
  auto pages = device::Pages::map(bytes);
  CHECK(pages.has_value(), "no memory for {} bytes", bytes);
  auto* words = reinterpret_cast<uint64_t*>(pages->data());
  for (int64_t i = 0; i < bytes / 8; ++i) {
    words[i] = static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15ULL;
  }
  return std::move(*pages);
}

// Bytes per second of `threads` threads that each read `bytes` of their own `rounds` times, in
// pieces of `page_bytes` in random order, or all in one run where that is 0.
double read_speed(int threads, int64_t bytes, int64_t page_bytes) {
  constexpr int64_t kReadBytes = int64_t{512} << 20;  // a pass reads as much, however small the set
  const int64_t rounds = std::max<int64_t>(1, kReadBytes / bytes);
  const int64_t piece = page_bytes > 0 ? page_bytes : bytes;
  std::vector<device::Pages> data(static_cast<size_t>(threads));
  std::vector<std::vector<const std::byte*>> pieces(static_cast<size_t>(threads));
  std::mt19937_64 random(1);
  // Whoever reads them fills them, so that they lie on the reader's node.
  run_together(threads,
               [&](int thread) { data[static_cast<size_t>(thread)] = filled_pages(bytes); });
  for (size_t i = 0; i < pieces.size(); ++i) {
    for (int64_t at = 0; at < bytes; at += piece) {
      pieces[i].push_back(data[i].data() + at);
    }
    std::shuffle(pieces[i].begin(), pieces[i].end(), random);
  }
  std::atomic<uint64_t> sink = 0;
  double best = 0.0;
  for (int pass = 0; pass < kPasses; ++pass) {
    // Whichever is faster on this machine.
    const Ahead ahead = page_bytes > 0 && pass % 2 != 0 ? Ahead::kPiece : Ahead::kLines;
    const double seconds = run_together(threads, [&](int thread) {
      const std::vector<const std::byte*>& own = pieces[static_cast<size_t>(thread)];
      uint64_t sum = 0;
      for (int64_t round = 0; round < rounds; ++round) {
        for (size_t i = 0; i < own.size(); ++i) {
          sum ^= read_run(own[i], piece, own[(i + 1) % own.size()], ahead);
        }
      }
      sink.fetch_xor(sum);
    });
    best = std::max(best,
                    static_cast<double>(threads * rounds) * static_cast<double>(bytes) / seconds);
  }
  return best;
}

// Jobs per second that the pool gives a part of to each of its threads, one after another: the
// parts end when all have begun, so that no thread does two.
double fork_join_speed(int threads) {
  constexpr int64_t kJobs = 5'000;
  auto pool =
      device::WorkerPool::create({.threads = threads, .spin = std::chrono::milliseconds(1)});
  CHECK(pool.ok(), "{}", pool.error().message);
  const int32_t desk = (*pool)->open_desk();
  device::Scratch scratch;
  struct Meeting {
    std::atomic<int64_t> begun{0};
    std::atomic<int64_t> wanted{0};
  } meeting;
  Meeting* address = &meeting;
  const device::PoolJob job{.run =
                                [](const void* context, int64_t, void*) {
                                  Meeting* own = *static_cast<Meeting* const*>(context);
                                  own->begun.fetch_add(1);
                                  while (own->begun.load() < own->wanted.load()) {
                                    device::cpu_relax();
                                  }
                                },
                            .context = &address,
                            .chunks = threads};
  double best = 0.0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const double began = seconds_now();
    for (int64_t i = 0; i < kJobs; ++i) {
      meeting.wanted.fetch_add(threads);
      (*pool)->run(desk, job, scratch);
    }
    best = std::max(best, static_cast<double>(kJobs) / (seconds_now() - began));
  }
  return best;
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

HWY_PUSH_ATTRIBUTES("avx512f,avx512vl,avx512bw,avx512dq,avx512bf16")
double avx512bf16_operations() {
  __m512 sums[12];
  for (__m512& sum : sums) {
    sum = _mm512_set1_ps(1.0F);
  }
  const auto factor = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f803f00));  // 1 and 0.5
  const auto term = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3c003b00));
  for (int64_t step = 0; step < kSteps; ++step) {
#pragma GCC unroll 12
    for (__m512& sum : sums) {
      sum = _mm512_dpbf16_ps(sum, factor, term);
    }
  }
  for (const __m512& sum : sums) {
    asm volatile("" ::"v"(sum));
  }
  return static_cast<double>(kSteps) * 12 * 16 * 4;
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
    case kernels::Isa::kAvx512Bf16:
      return avx512bf16_operations();
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
  const std::vector<device::Seat> seats = seats_of(threads);
  std::barrier start(threads);
  std::vector<std::thread> workers;
  std::vector<double> begins(static_cast<size_t>(threads));
  std::vector<double> ends(static_cast<size_t>(threads));
  for (int thread = 0; thread < threads; ++thread) {
    workers.emplace_back([&, thread] {
      pin_this_thread(seats[static_cast<size_t>(thread)].cpus);  // unpinned figures are figures
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

uint64_t read_lines(const void* data, int64_t bytes) {
  const auto* begin = static_cast<const std::byte*>(data);
  return read_run(begin, bytes, begin + bytes, Ahead::kLines);
}

double read_ceiling(int threads) { return read_speed(threads, int64_t{512} << 20, 0); }

bool has_bf16_products(kernels::Isa isa) {
  return isa == kernels::Isa::kAmx || isa == kernels::Isa::kAvx512Bf16;
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

void measure_ceilings(int threads, const std::function<void(const CeilingRow&)>& each) {
  struct Reading {
    const char* name;
    int64_t bytes;  // of each thread
    int64_t page_bytes;
  };
  constexpr Reading kReadings[] = {{"read memory", 512 * kMiB, 0},
                                   {"read memory, pages of 32 KiB", 512 * kMiB, 32 << 10},
                                   {"read memory, pages of 4 KiB", 512 * kMiB, 4 << 10},
                                   {"read shared cache", 32 * kMiB, 0},
                                   {"read own cache", kMiB / 2, 0}};
  std::vector<int> counts;
  for (int count = 1; count < threads; count *= 2) {
    counts.push_back(count);
  }
  counts.push_back(threads);
  for (const int count : counts) {
    for (const Reading& reading : kReadings) {
      each({reading.name, count, reading.bytes * count,
            read_speed(count, reading.bytes, reading.page_bytes), "bytes"});
    }
    for (const kernels::Isa isa : kernels::available_isas()) {
      const double speed = compute_ceiling(isa, count);
      if (speed > 0.0) {
        const std::string name = std::string(kernels::isa_name(isa)) +
                                 (has_bf16_products(isa) ? " bf16" : " fp32") + " in registers";
        each({name, count, 0, speed, "operations"});
      }
    }
    if (count > 1) {
      each({"fork and join", count, 0, fork_join_speed(count), "jobs"});
    }
  }
}

}  // namespace tandem::bench
