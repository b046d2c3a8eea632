// What this machine can do at most: the yardsticks of the kernel benchmarks. Each figure is the
// best of several passes and takes about half a second.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace tandem::bench {

// Runs body(thread) on `threads` threads at once, each on a processor of its own where there are
// enough, and returns the seconds from the common start to the last one's end.
double run_together(int threads, const std::function<void(int)>& body);

// Brings `bytes` (a multiple of 1 KiB) into the cache as fast as can be: software prefetches just
// ahead and one load of each line. Returns something made of the data.
uint64_t read_lines(const void* data, int64_t bytes);

// Bytes per second that `threads` threads together read from memory, each its own 512 MiB of huge
// pages.
double read_ceiling(int threads);

// Whether the family multiplies bf16 as such; others convert it to fp32.
bool has_bf16_products(kernels::Isa isa);

// Operations per second (a multiply-add is two) of the family's multiplier on data in registers:
// bf16 where it has such, else fp32. 0 where it is not known how to measure.
double compute_ceiling(kernels::Isa isa, int threads);

// One ceiling of the machine.
struct CeilingRow {
  std::string name;
  int threads = 0;
  int64_t bytes = 0;        // what all threads together read over and over; 0: registers
  double per_second = 0.0;  // bytes, operations or jobs, of all threads together
  std::string unit;         // "bytes", "operations" or "jobs"
};

// With 1, 2, 4 .. `threads` threads: reading beyond and inside the last-level cache, in one run and
// in pages of 4 and 32 KiB in random order; each family's multiplier; and jobs that the worker pool
// forks and joins. `each` is called with every row when it is known.
void measure_ceilings(int threads, const std::function<void(const CeilingRow&)>& each);

}  // namespace tandem::bench
