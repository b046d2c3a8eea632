// `tandem bench frontend --crowd`: what a token waits between the engine and its client while
// thousands of connections are open and others are refused. A null model makes a step at a fixed
// time; latency runs from the step's hand-over to the client's recv(), so it holds the server, the
// loopback and the measuring clients, which share the machine.
#pragma once

#include <cstdint>

#include "api/server_options.h"
#include "base/clock.h"
#include "request/frontend.h"

namespace tandem::bench {

struct BenchCrowdOptions {
  int32_t streams = 200;    // clients that stream
  int32_t idle = 5000;      // connections that do nothing
  int32_t flooders = 16;    // clients that ask again as soon as they are refused
  double interval_ms = 20;  // between steps: a token for each stream
  double seconds = 3;       // of each phase
};

// Prints three phases (streams alone, among idle connections, and among refused requests) and the
// ratios between them; returns the exit code.
int bench_crowd(const BenchCrowdOptions& options, const ServedModel& model,
                const text::Tokenizer& tokenizer, const text::ChatTemplate& chat_template);

}  // namespace tandem::bench
