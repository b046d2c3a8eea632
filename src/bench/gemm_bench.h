// `tandem bench kernels`: the ceilings of this machine, and what the kernels reach beside them.
// Weights are random, larger than the caches, and rotated; a pass of products alternates with one
// that only reads the same weights, both medians of one run. Prints one row per shape and, when
// asked, writes the same as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace tandem::bench {

struct GemmShape {
  std::string name;
  int64_t n = 0;  // multiples of 32
  int64_t k = 0;
};

// The products of a layer of a random 1.1B Llama, and of an 8B one.
std::vector<GemmShape> shapes_1b();
std::vector<GemmShape> shapes_8b();

struct BenchKernelsOptions {
  std::vector<kernels::Isa> isas;  // empty: the best one of this machine
  ElementType type = ElementType::kBF16;
  Quantization quantization = Quantization::kNone;  // of the weights of matrix products
  Activations activations = Activations::kPlain;    // in products with quantised weights
  int threads = 2;
  std::vector<int64_t> rows = {1, 4, 8, 16, 32, 64, 128, 256, 512};
  std::vector<GemmShape> shapes = shapes_1b();
  int passes = 7;
  int64_t weight_bytes = int64_t{1} << 30;  // rotated, per shape
  std::string only;                         // rows whose name holds this; empty: all
  std::string json_path;                    // empty: none
};

struct Ceilings {
  double read = 0.0;     // bytes/s, all threads; at the start of the run
  double compute = 0.0;  // operations/s, all threads; 0: unknown
};

// One line of the result, of any kernel.
struct BenchRow {
  std::string op;
  std::string isa;
  std::string type;         // the weights' type
  std::string activations;  // the type to which a product rounds activations; empty: it does not
  int threads = 0;
  int64_t rows = 0;
  int64_t n = 0;
  int64_t k = 0;
  double bytes = 0.0;            // read from memory
  double operations = 0.0;       // a multiply-add is two
  double read_seconds = 0.0;     // of a pass that only reads, between the others; 0: none
  double ceiling_seconds = 0.0;  // the model: the longer of bytes and operations at their ceilings
  double seconds = 0.0;          // median
  double fastest_seconds = 0.0;
  double slowest_seconds = 0.0;
};

// All shapes and rows of the options for one family.
std::vector<BenchRow> measure_gemm(const BenchKernelsOptions& options, kernels::Isa isa,
                                   const Ceilings& ceilings);

// Prints; returns the process's exit code.
int bench_kernels(const BenchKernelsOptions& options);

}  // namespace tandem::bench
