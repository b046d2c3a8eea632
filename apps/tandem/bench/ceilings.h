// What this machine can do at most: the yardsticks of the kernel benchmarks. Each function runs for
// about a second and returns the best of several passes.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/kernels.h"

namespace tandem::bench {

// Runs body(thread) on `threads` threads at once, each on a processor of its own where there are
// enough, and returns the seconds from the common start to the last one's end.
double run_together(int threads, const std::function<void(int)>& body);

// Bytes per second that `threads` threads together read from memory, each its own 512 MiB.
double read_ceiling(int threads);

// Operations per second (a multiply-add is two) of the family's multiplier on data in registers.
// bf16 on the matrix unit for kAmx, else fp32. 0 where it is not known how to measure.
double compute_ceiling(kernels::Isa isa, int threads);

}  // namespace tandem::bench
