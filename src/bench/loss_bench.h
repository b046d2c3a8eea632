// `tandem bench loss`: what quantised weights cost in quality. The mean loss and the perplexity of
// a text under each format of the weights, beside those of the first. The text is a file's, or
// drawn from the model itself with the weights of the first format; then the difference of losses
// is the divergence of the formats' distributions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/quantization.h"
#include "node/node_options.h"

namespace tandem::bench {

struct BenchLossOptions {
  NodeOptions node;
  std::filesystem::path text;    // empty: drawn from the model
  int32_t tokens = 16384;        // of the text at most
  int32_t context_tokens = 512;  // of each piece of the text, or as many as the model has
  // Behind the first comes what a file of quantised weights has, if the model is one.
  std::vector<Quantization> formats = {kQuantizations.begin(), kQuantizations.end()};
  std::string json_path;     // empty: none
  std::string flags = "{}";  // of the command, for that file: see command_flags.h
};

// Prints; returns the process's exit code.
int bench_loss(BenchLossOptions options);

}  // namespace tandem::bench
