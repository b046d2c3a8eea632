#include "bench/gemm_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/units.h"
#include "bench/attention_bench.h"
#include "bench/ceilings.h"
#include "bench/measuring.h"
#include "cli/exit_code.h"
#include "device/cpu/machine.h"
#include "device/cpu/pages.h"
#include "device/cpu/proc_text.h"
#include "device/cpu/topology.h"

namespace tandem::bench {

namespace {

using kernels::GemmArgs;
using kernels::Kernels;
using kernels::PackedMatrix;

using device::Pages;

// In huge pages where the system gives them, as a server's weights and activations are.
Pages allocate(int64_t bytes) {
  auto pages = Pages::map(bytes);
  CHECK(pages.has_value(), "no memory for {} bytes", bytes);
  return std::move(*pages);
}

// Values of both signs and several exponents; in the packed layout any order is as random.
Pages random_values(ElementType type, int64_t count, uint64_t seed) {
  Pages memory = allocate(count * element_bytes(type));
  uint64_t state = seed * 2 + 1;
  for (int64_t i = 0; i < count; ++i) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const float value = static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-31F;
    if (type == ElementType::kF32) {
      reinterpret_cast<float*>(memory.data())[i] = value;
    } else {
      reinterpret_cast<BFloat16*>(memory.data())[i] = f32_to_bf16(value);
    }
  }
  return memory;
}

// Sorted, one of each pass.
struct PassSeconds {
  std::vector<double> reading;
  std::vector<double> products;
};

// The seconds of each product in one pass over the copies of the weight, all threads together, and
// of one that only reads them.
PassSeconds time_products(const Kernels& table, const std::vector<GemmArgs>& products, int threads,
                          int passes) {
  std::vector<Pages> scratch;
  for (int thread = 0; thread < threads; ++thread) {
    scratch.push_back(allocate(table.gemm_scratch_bytes(products[0])));
  }
  const int64_t shared = table.prepared_bytes(products[0]);
  Pages prepared = allocate(shared);
  const int64_t panels = products[0].w.panels();
  const int64_t panel_bytes = products[0].w.bytes() / panels;
  std::barrier together(threads);
  std::atomic<uint64_t> sink = 0;
  PassSeconds result;
  // A pass is what decoding does: one product after the other, all threads meeting in between.
  const auto run_pass = [&](int thread, std::vector<double>* seconds, const auto& one) {
    together.arrive_and_wait();
    const double began = seconds_now();
    for (const GemmArgs& product : products) {
      one(product, panels * thread / threads, panels * (thread + 1) / threads);
      together.arrive_and_wait();
    }
    if (thread == 0 && seconds != nullptr) {
      seconds->push_back((seconds_now() - began) / static_cast<double>(products.size()));
    }
  };
  run_together(threads, [&](int thread) {
    for (int pass = -1; pass < passes; ++pass) {  // the first warms up
      const bool counts = pass >= 0;
      run_pass(
          thread, counts ? &result.reading : nullptr,
          [&](const GemmArgs& product, int64_t begin, int64_t end) {
            const auto* data = static_cast<const std::byte*>(product.w.data);
            sink.fetch_xor(read_lines(data + begin * panel_bytes, (end - begin) * panel_bytes));
          });
      run_pass(thread, counts ? &result.products : nullptr,
               [&](GemmArgs product, int64_t begin, int64_t end) {
                 if (shared > 0) {
                   table.prepare(product, product.rows * thread / threads,
                                 product.rows * (thread + 1) / threads, prepared.data());
                   product.prepared = prepared.data();
                   together.arrive_and_wait();
                 }
                 table.gemm(product, begin, end, scratch[static_cast<size_t>(thread)].data());
               });
    }
  });
  std::sort(result.reading.begin(), result.reading.end());
  std::sort(result.products.begin(), result.products.end());
  return result;
}

void print_row(const BenchRow& row, const Ceilings& ceilings) {
  fmt::print(
      "{:8} {:7} {:9} {:5} {:6} {:6}  {:8.1f} {:8.1f} [{:.1f}..{:.1f}]  {:6.2f} GB/s  {:6.3f} TF",
      row.op, row.isa, row.activations.empty() ? row.type : row.type + "/a8", row.rows, row.n,
      row.k, row.ceiling_seconds * 1e6, row.seconds * 1e6, row.fastest_seconds * 1e6,
      row.slowest_seconds * 1e6, row.bytes / row.seconds * 1e-9,
      row.operations / row.seconds * 1e-12);
  fmt::print("  read {:3.0f} %", 100.0 * row.read_seconds / row.seconds);
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
          {"activations", row.activations},
          {"threads", row.threads},
          {"rows", row.rows},
          {"n", row.n},
          {"k", row.k},
          {"bytes", row.bytes},
          {"operations", row.operations},
          {"read_seconds", row.read_seconds},
          {"model_seconds", row.ceiling_seconds},
          {"measured_seconds", row.seconds},
          {"fastest_seconds", row.fastest_seconds},
          {"slowest_seconds", row.slowest_seconds},
          {"ratio", row.ceiling_seconds / row.seconds}};
}

void print_ceiling(const CeilingRow& row) {
  const double scale = row.unit == "bytes" ? 1e-9 : row.unit == "operations" ? 1e-12 : 1e-3;
  const std::string_view unit = row.unit == "bytes"        ? "GB/s"
                                : row.unit == "operations" ? "TF"
                                                           : "jobs/ms";
  fmt::print("ceiling  {:36} {:2} threads  {:7.1f} MiB  {:8.3f} {}\n", row.name, row.threads,
             static_cast<double>(row.bytes) / (1 << 20), row.per_second * scale, unit);
  std::fflush(stdout);
}

nlohmann::json to_json(const CeilingRow& row) {
  return {{"name", row.name},
          {"threads", row.threads},
          {"bytes", row.bytes},
          {"per_second", row.per_second},
          {"unit", row.unit}};
}

}  // namespace

std::vector<GemmShape> shapes_1b() {
  return {{"qkv", 2560, 2048}, {"out", 2048, 2048}, {"gate_up", 11264, 2048}, {"down", 2048, 5632}};
}

std::vector<GemmShape> shapes_8b() {
  return {{"qkv 8B", 6144, 4096},
          {"out 8B", 4096, 4096},
          {"gate_up 8B", 28672, 4096},
          {"down 8B", 4096, 14336}};
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
    matrix.quantization = options.quantization;
    matrix.activations = options.activations;
    matrix.n = shape.n;
    matrix.k = shape.k;
    const int64_t copies = std::max<int64_t>(1, options.weight_bytes / matrix.bytes());
    // Of a quantised one any integers, and scales below 2.
    const Pages weights =
        random_values(options.type, copies * matrix.bytes() / element_bytes(options.type), 1);
    for (const int64_t count : options.rows) {
      const int64_t x_stride = kernels::spread_stride(shape.k, options.type);
      const int64_t y_stride = kernels::spread_stride(shape.n, ElementType::kF32);
      const Pages x = random_values(options.type, count * x_stride, 2);
      const Pages y = allocate(count * y_stride * int64_t{sizeof(float)});
      std::vector<GemmArgs> products;
      for (int64_t copy = 0; copy < copies; ++copy) {
        GemmArgs args;
        args.x = x.data();
        args.x_stride = x_stride;
        args.rows = count;
        args.w = matrix;
        args.w.data = weights.data() + copy * matrix.bytes();
        args.y = reinterpret_cast<float*>(y.data());
        args.y_stride = y_stride;
        products.push_back(args);
        const double operations = 2.0 * static_cast<double>(count * shape.n) *
                                  static_cast<double>(shape.k) * static_cast<double>(copy + 1);
        if (operations > 2e11) {
          break;  // enough for a pass of this many rows
        }
      }
      const PassSeconds seconds = time_products(**table, products, options.threads, options.passes);
      BenchRow row;
      row.op = shape.name;
      row.isa = kernels::isa_name(isa);
      row.type =
          matrix.quantized() ? quantization_name(matrix.quantization) : element_name(options.type);
      if (options.activations != Activations::kPlain) {
        row.activations = activations_name(options.activations);
      }
      row.threads = options.threads;
      row.rows = count;
      row.n = shape.n;
      row.k = shape.k;
      row.bytes = static_cast<double>(matrix.bytes());
      row.operations = 2.0 * static_cast<double>(count * shape.n) * static_cast<double>(shape.k);
      row.read_seconds = seconds.reading[seconds.reading.size() / 2];
      row.ceiling_seconds = row.read_seconds;
      if (ceilings.compute > 0.0) {
        row.ceiling_seconds = std::max(row.ceiling_seconds, row.operations / ceilings.compute);
      }
      row.seconds = seconds.products[seconds.products.size() / 2];
      row.fastest_seconds = seconds.products.front();
      row.slowest_seconds = seconds.products.back();
      print_row(row, ceilings);
      rows.push_back(row);
    }
  }
  return rows;
}

// The memory nodes of this machine; nothing where there is one.
void report_nodes(nlohmann::json& result) {
  const device::Topology topology = device::read_topology(device::allowed_cpus());
  if (topology.size() < 2) {
    return;
  }
  for (const device::MemoryNode& node : topology) {
    std::vector<int32_t> cpus = node.cpus;
    std::sort(cpus.begin(), cpus.end());
    const std::string list = device::format_ranges(cpus);
    fmt::print("node {:2}  {:3} cores, CPUs {}, {}\n", node.id, node.cores, list,
               format_bytes(node.memory_bytes));
    result["nodes"].push_back(
        {{"node", node.id}, {"cpus", list}, {"memory_bytes", node.memory_bytes}});
  }
}

int bench_kernels(const BenchKernelsOptions& options) {
  std::vector<kernels::Isa> isas = options.isas;
  if (isas.empty()) {
    isas.push_back(kernels::available_isas().back());
  }
  nlohmann::json result;
  report_nodes(result);
  result["threads"] = options.threads;
  result["passes"] = options.passes;
  result["rows"] = nlohmann::json::array();
  result["machine"] = nlohmann::json::array();
  if (std::string("ceilings").find(options.only) != std::string::npos) {
    measure_ceilings(options.threads, [&](const CeilingRow& row) {
      print_ceiling(row);
      result["machine"].push_back(to_json(row));
    });
  }
  for (const kernels::Isa isa : isas) {
    // First of all: it also gets the operating system's leave to use the matrix unit.
    const Result<const Kernels*> table = kernels::kernels_for(isa);
    if (!table.ok()) {
      fmt::print(stderr, "tandem: {}\n", table.error().message);
      return cli::exit_code_of(table.error().code);
    }
    // fp32 weights are multiplied by the AVX-512 kernels.
    const bool vectors = has_bf16_products(isa) && options.type == ElementType::kF32;
    const Ceilings ceilings = {
        read_ceiling(options.threads),
        compute_ceiling(vectors ? kernels::Isa::kAvx512 : isa, options.threads)};
    fmt::print("{}, {} threads: read ceiling {:.1f} GB/s, compute ceiling {:.2f} TF\n",
               kernels::isa_name(isa), options.threads, ceilings.read * 1e-9,
               ceilings.compute * 1e-12);
    fmt::print(
        "op       isa     type       rows      n      k  model us  measured us (median, "
        "fastest..slowest); model: reading the bytes in this run, or the operations at the "
        "ceiling; /a8: activations are rounded to int8\n");
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
