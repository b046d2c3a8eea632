// `tandem bench frontend --hostile`: what a token of one client waits between the engine and its
// reader while another client sends the worst requests that the server accepts. A null model makes
// a step at a fixed time. Server and clients share the machine, so each stall is printed twice: by
// the clock, and as the processor time of the I/O thread between a step's arrival and its write.
#pragma once

#include <cstdint>

namespace tandem::bench {

struct BenchHostileOptions {
  int32_t streams = 4;     // of the neighbour
  int32_t attackers = 2;   // connections that attack at a time
  double interval_ms = 5;  // between steps: a token for each stream
  double seconds = 3;      // of each attack; the last requests are waited for
};

// Prints the longest stall of each attack; returns the exit code.
int bench_hostile(const BenchHostileOptions& options);

}  // namespace tandem::bench
