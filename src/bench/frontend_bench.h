// `tandem bench frontend`: how many streamed tokens a second the HTTP server gives out, with a null
// model behind it and readers on real sockets before it. The readers' time is not the server's: the
// figure is tokens per second of the I/O thread.
#pragma once

#include <cstdint>

#include "bench/crowd_bench.h"
#include "bench/hostile_bench.h"

namespace tandem::bench {

struct BenchFrontendOptions {
  int32_t connections = 64;  // clients that stream at a time
  int32_t tokens = 256;      // of an answer
  int32_t requests = 2048;   // answers in all
  bool with_crowd = false;   // measure latency in a crowd instead
  BenchCrowdOptions crowd;
  bool with_hostile = false;  // measure stalls beside hostile requests instead
  BenchHostileOptions hostile;
};

// Prints the result; returns the exit code.
int bench_frontend(const BenchFrontendOptions& options);

}  // namespace tandem::bench
