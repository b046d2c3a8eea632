#include "gemm_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>

#include "attention_bench.h"
#include "ceilings.h"

namespace tandem::bench {

namespace {

using kernels::GemmArgs;
using kernels::Kernels;
using kernels::PackedMatrix;

struct Free {
  void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{64}); }
};
using Memory = std::unique_ptr<std::byte, Free>;

Memory allocate(int64_t bytes) {
  return Memory(static_cast<std::byte*>(
      ::operator new (static_cast<size_t>(std::max<int64_t>(bytes, 64)), std::align_val_t{64})));
}

// Values of both signs and several exponents; in the packed layout any order is as random.
Memory random_values(ElementType type, int64_t count, uint64_t seed) {
  Memory memory = allocate(count * element_bytes(type));
  uint64_t state = seed * 2 + 1;
  for (int64_t i = 0; i < count; ++i) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const float value = static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-31F;
    if (type == ElementType::kF32) {
      reinterpret_cast<float*>(memory.get())[i] = value;
    } else {
      reinterpret_cast<BFloat16*>(memory.get())[i] = f32_to_bf16(value);
    }
  }
  return memory;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The seconds of each product in one pass over the copies of the weight, all threads together.
std::vector<double> time_products(const Kernels& table, const std::vector<GemmArgs>& products,
                                  int threads, int passes) {
  std::vector<Memory> scratch;
  for (int thread = 0; thread < threads; ++thread) {
    scratch.push_back(allocate(table.gemm_scratch_bytes(products[0])));
  }
  const int64_t panels = products[0].w.panels();
  std::barrier together(threads);
  std::vector<double> per_pass;
  // A pass is what decoding does: one product after the other, all threads meeting in between.
  run_together(threads, [&](int thread) {
    for (int pass = -1; pass < passes; ++pass) {  // the first warms up
      together.arrive_and_wait();
      const double began = seconds_now();
      for (const GemmArgs& product : products) {
        table.gemm(product, panels * thread / threads, panels * (thread + 1) / threads,
                   scratch[static_cast<size_t>(thread)].get());
        together.arrive_and_wait();
      }
      if (thread == 0 && pass >= 0) {
        per_pass.push_back((seconds_now() - began) / static_cast<double>(products.size()));
      }
    }
  });
  std::sort(per_pass.begin(), per_pass.end());
  return per_pass;
}

void print_row(const BenchRow& row, const Ceilings& ceilings) {
  fmt::print(
      "{:8} {:7} {:9} {:5} {:6} {:6}  {:8.1f} {:8.1f} [{:.1f}..{:.1f}]  {:6.2f} GB/s  {:6.3f} TF",
      row.op, row.isa, row.type, row.rows, row.n, row.k, row.ceiling_seconds * 1e6,
      row.seconds * 1e6, row.fastest_seconds * 1e6, row.slowest_seconds * 1e6,
      row.bytes / row.seconds * 1e-9, row.operations / row.seconds * 1e-12);
  fmt::print("  read {:3.0f} %", 100.0 * row.bytes / row.seconds / ceilings.read);
  if (ceilings.compute > 0.0) {
    fmt::print("  compute {:3.0f} %", 100.0 * row.operations / row.seconds / ceilings.compute);
  }
  fmt::print("  ratio {:.2f}\n", row.ceiling_seconds / row.seconds);
  std::fflush(stdout);
}

nlohmann::json to_json(const BenchRow& row) {
  return {{"op", row.op},
          {"isa", row.isa},
          {"type", row.type},
          {"threads", row.threads},
          {"rows", row.rows},
          {"n", row.n},
          {"k", row.k},
          {"bytes", row.bytes},
          {"operations", row.operations},
          {"model_seconds", row.ceiling_seconds},
          {"measured_seconds", row.seconds},
          {"fastest_seconds", row.fastest_seconds},
          {"slowest_seconds", row.slowest_seconds},
          {"ratio", row.ceiling_seconds / row.seconds}};
}

}  // namespace

Ceilings measure_ceilings(kernels::Isa isa, int threads) {
  return {read_ceiling(threads), compute_ceiling(isa, threads)};
}

std::vector<BenchRow> measure_gemm(const BenchKernelsOptions& options, kernels::Isa isa,
                                   const Ceilings& ceilings) {
  const Result<const Kernels*> table = kernels::kernels_for(isa);
  if (!table.ok()) {
    fmt::print(stderr, "{}\n", table.error().message);
    return {};
  }
  std::vector<BenchRow> rows;
  for (const GemmShape& shape : options.shapes) {
    if (shape.name.find(options.only) == std::string::npos) {
      continue;
    }
    PackedMatrix matrix;
    matrix.type = options.type;
    matrix.n = shape.n;
    matrix.k = shape.k;
    const int64_t copies = std::max<int64_t>(1, options.weight_bytes / matrix.bytes());
    const Memory weights = random_values(options.type, copies * shape.n * shape.k, 1);
    for (const int64_t count : options.rows) {
      const int64_t x_stride = kernels::spread_stride(shape.k, options.type);
      const int64_t y_stride = kernels::spread_stride(shape.n, ElementType::kF32);
      const Memory x = random_values(options.type, count * x_stride, 2);
      const Memory y = allocate(count * y_stride * int64_t{sizeof(float)});
      std::vector<GemmArgs> products;
      for (int64_t copy = 0; copy < copies; ++copy) {
        GemmArgs args;
        args.x = x.get();
        args.x_stride = x_stride;
        args.rows = count;
        args.w = matrix;
        args.w.data = weights.get() + copy * matrix.bytes();
        args.y = reinterpret_cast<float*>(y.get());
        args.y_stride = y_stride;
        products.push_back(args);
        const double operations = 2.0 * static_cast<double>(count * shape.n) *
                                  static_cast<double>(shape.k) * static_cast<double>(copy + 1);
        if (operations > 2e11) {
          break;  // enough for a pass of this many rows
        }
      }
      const std::vector<double> seconds =
          time_products(**table, products, options.threads, options.passes);
      BenchRow row;
      row.op = shape.name;
      row.isa = kernels::isa_name(isa);
      row.type = element_name(options.type);
      row.threads = options.threads;
      row.rows = count;
      row.n = shape.n;
      row.k = shape.k;
      row.bytes = static_cast<double>(matrix.bytes());
      row.operations = 2.0 * static_cast<double>(count * shape.n) * static_cast<double>(shape.k);
      row.ceiling_seconds = row.bytes / ceilings.read;
      if (ceilings.compute > 0.0) {
        row.ceiling_seconds = std::max(row.ceiling_seconds, row.operations / ceilings.compute);
      }
      row.seconds = seconds[seconds.size() / 2];
      row.fastest_seconds = seconds.front();
      row.slowest_seconds = seconds.back();
      print_row(row, ceilings);
      rows.push_back(row);
    }
  }
  return rows;
}

int bench_kernels(const BenchKernelsOptions& options) {
  std::vector<kernels::Isa> isas = options.isas;
  if (isas.empty()) {
    isas.push_back(kernels::available_isas().back());
  }
  nlohmann::json result;
  result["threads"] = options.threads;
  result["passes"] = options.passes;
  result["rows"] = nlohmann::json::array();
  for (const kernels::Isa isa : isas) {
    // First of all: it also gets the operating system's leave to use the matrix unit.
    const Result<const Kernels*> table = kernels::kernels_for(isa);
    if (!table.ok()) {
      fmt::print(stderr, "tandem: {}\n", table.error().message);
      return 1;
    }
    // fp32 weights never reach the matrix unit.
    const bool vectors = isa == kernels::Isa::kAmx && options.type == ElementType::kF32;
    const Ceilings ceilings =
        measure_ceilings(vectors ? kernels::Isa::kAvx512 : isa, options.threads);
    fmt::print("{}, {} threads: read ceiling {:.1f} GB/s, compute ceiling {:.2f} TF\n",
               kernels::isa_name(isa), options.threads, ceilings.read * 1e-9,
               ceilings.compute * 1e-12);
    fmt::print(
        "op       isa     type       rows      n      k  model us  measured us (median, "
        "fastest..slowest)\n");
    result["ceilings"][std::string(kernels::isa_name(isa))] = {
        {"read_bytes_per_second", ceilings.read}, {"operations_per_second", ceilings.compute}};
    for (const BenchRow& row : measure_gemm(options, isa, ceilings)) {
      result["rows"].push_back(to_json(row));
    }
    AttentionBenchOptions attention;
    attention.type = options.type;
    attention.threads = options.threads;
    attention.passes = options.passes;
    attention.only = options.only;
    for (const BenchRow& row : measure_attention(attention, isa, ceilings.compute)) {
      result["rows"].push_back(to_json(row));
    }
  }
  if (!options.json_path.empty()) {
    std::ofstream file(options.json_path);
    file << result.dump(2) << '\n';
    if (!file) {
      fmt::print(stderr, "cannot write {}\n", options.json_path);
      return 1;
    }
  }
  return 0;
}

}  // namespace tandem::bench
