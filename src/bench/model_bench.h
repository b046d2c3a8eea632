// `tandem bench model`: a whole model through the engine, no HTTP: time of one prompt, and tokens
// per second of batches that decode together, each sequence with its own prompt. Greedy, no prefix
// cache. Medians of several passes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "node/node_options.h"

namespace tandem::bench {

struct BenchModelOptions {
  NodeOptions node;
  int32_t prompt_tokens = 512;
  int32_t output_tokens = 128;
  std::vector<int32_t> batches = {1, 16, 32};
  int32_t passes = 5;
  bool with_ops = false;     // also the time of each kind of op
  std::string json_path;     // empty: none
  std::string flags = "{}";  // of the command, for that file: see command_flags.h
};

// Prints; returns the process's exit code.
int bench_model(BenchModelOptions options);

}  // namespace tandem::bench
